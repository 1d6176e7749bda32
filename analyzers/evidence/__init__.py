"""Find measured times that match the calls of a job, and compare the libraries' kernels with the fastest known ones."""
