"""Lines that stay whole: `printflock`, and `install` for every print and logging line."""
