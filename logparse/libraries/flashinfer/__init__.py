"""Reader of FlashInfer's file of chosen tactics."""
