package cli

// Exit is an error that was printed already and only sets the exit code.
type Exit int

func (Exit) Error() string { return "failed" }

// Found is the exit code of a command that succeeded and reports findings at or above the threshold. It is the exit
// code of istioctl analyze. All other failures exit with 1.
const Found = 79
