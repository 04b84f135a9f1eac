// Package freeport picks ports for programs that are told theirs before they start.
package freeport
