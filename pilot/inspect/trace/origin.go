package trace

// PolicyOrigin returns the rule of the AuthorizationPolicy that a name in details of responses stands for, such as
// ns[a]-policy[web]-rule[0]. Its Path is empty for other names.
func PolicyOrigin(name string) Origin { return originOf(name) }
