// placeholder, replaced by the writer
