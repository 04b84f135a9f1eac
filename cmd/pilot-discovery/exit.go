package main

// failed is an error that has been printed already: only the exit code is left.
type failed int

func (failed) Error() string { return "failed" }

// exitFound is the exit code of a command that did its work and found something at or above the threshold. It is that
// of istioctl analyze. All other failures are 1.
const exitFound = 79
