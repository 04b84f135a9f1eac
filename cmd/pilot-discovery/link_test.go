package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Whatever links html/template makes the linker keep every exported method there is, a third of the binary more: the
// Makefile's tag keeps it out.
func TestNoTemplatesAreLinked(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(makefile), "\nTAGS     := ")
	tags, _, _ := strings.Cut(rest, "\n")
	list, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", tags, ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if deps := strings.Fields(string(list)); !slices.Contains(deps, "google.golang.org/grpc") || slices.Contains(deps, "html/template") {
		t.Errorf("built with the tags %q, the server links html/template, or not gRPC", tags)
	}
}
