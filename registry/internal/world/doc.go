// Package world turns YAML into changes, for the tests of the registries. It is no input path: it knows no positions, and fails the test at the first fault.
package world
