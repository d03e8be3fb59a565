"""Jin, Peng, Yang, Wang, Zhang: Federated RL with Environment Heterogeneity, AISTATS 2022."""
