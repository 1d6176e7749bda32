"""Files that logparse writes itself, and what libraries print without a format of their own."""
