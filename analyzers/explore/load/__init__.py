"""From a store to what the page shows: prepared in a child process, kept between looks."""
