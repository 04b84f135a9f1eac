package openness

// accepted are the differences that are meant. A difference that none of them explains is a fault.
var accepted = []struct {
	Reason  string
	Applies func(World, Difference) bool
}{}

// Unexplained returns the differences that are not accepted.
func Unexplained(w World, all []Difference) (out []Difference) {
	for _, d := range all {
		if Reason(w, d) == "" {
			out = append(out, d)
		}
	}
	return out
}

// Reason returns why a difference is accepted, empty if it is not.
func Reason(w World, d Difference) string {
	for _, a := range accepted {
		if a.Applies(w, d) {
			return a.Reason
		}
	}
	return ""
}
