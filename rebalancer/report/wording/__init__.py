"""What all formats say in the same words: figures, names made harmless, sentences, next commands."""
