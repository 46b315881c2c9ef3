"""A cluster without its names: what no plan depends on is left out, and names become pseudonyms."""
