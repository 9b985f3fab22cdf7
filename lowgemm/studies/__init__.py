"""What puts kernels, devices and timers together: the ladder, its verification, its peers."""
