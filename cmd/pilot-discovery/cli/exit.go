package cli

// Exit is an error that has been printed already: only the exit code is left.
type Exit int

func (Exit) Error() string { return "failed" }

// Found is the exit code of a command that did its work and found something at or above the threshold. It is that
// of istioctl analyze. All other failures are 1.
const Found = 79
