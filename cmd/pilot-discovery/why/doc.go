// Package why has the command why, which traces a request through the mesh and gives the reason for each decision.
package why
