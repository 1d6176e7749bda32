"""Answer a user's questions: which products ran most, what is known of one of them, what does the store hold?

A product here is a matrix product or convolution with its sizes, types and layout.

| module | answers |
|---|---|
| ``ranking``, ``ranking_sql`` | which products ran most, or took most time (``top``) |
| ``left_out`` | how many lines and results the answers do not use |
| ``one_problem`` | which calls and times of a product the store has (``show``) |
| ``problems_in_text`` | which products a pasted text names |
| ``contents`` | which runs and files the store holds (``status``) |
"""
