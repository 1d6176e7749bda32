"""FlashInfer."""
