// Package delegates bounds what VirtualServices that delegate to others ask for: the routes of a delegate count once
// for each route that delegates to it, and its matches once for each match of that route. It is pure: what is left out,
// and the finding about it, come from the same calculation.
package delegates
