"""Reader of the file in which FlashInfer keeps the kernels that its autotuner chose."""
