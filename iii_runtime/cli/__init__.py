"""The command line, `iii-runtime`. Each command group is a module of its own and loads when it is used."""
