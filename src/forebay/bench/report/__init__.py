"""Result documents as a page to look at and as a summary for a pull request."""
