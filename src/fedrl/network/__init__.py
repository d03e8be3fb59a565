"""Federation over a network: a server and agents on machines of their own, on Flower."""
