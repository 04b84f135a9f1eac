// Package locality tests what real Envoys make of localities: requests stay close while endpoints there are well, go to
// the next locality when they fail, and are spread by weights; and where requests are retried.
package locality
