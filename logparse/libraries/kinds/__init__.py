"""The classes by which logparse describes a library: how to read its logs, tune it and measure its kernels.

For each library there is a folder, which declares its formats with these classes.
"""
