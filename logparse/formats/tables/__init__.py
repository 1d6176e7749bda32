"""Tables of shapes and times: aiter, rocBLAS, and anyone's spreadsheet."""
