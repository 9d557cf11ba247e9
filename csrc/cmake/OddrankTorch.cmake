# Decides whether _torch is built: needs torch >= 2.11 in the environment that oddrank is installed into.
oddrank_part(_torch "ODDRANK_TORCH is OFF" "")
