"""Sessions in the forms that other programs read. Pure: a reading in, a document out."""
