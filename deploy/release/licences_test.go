package release

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/licensecheck"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// leastKnown is the least percentage of the words of a licence file that are words of known licences. The rest names
// owners.
const leastKnown = 75

var licenceFile = regexp.MustCompile(`^(?i)((UN)?LICEN[SC]E|COPYING)([-.].*)?$`)

// licences returns the licences in a folder by their SPDX names, and the files that have text of no known licence.
func licences(t *testing.T, dir string) (known, unknown []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must.Succeed(t, err)
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must.Succeed(t, err)
		found := licensecheck.Scan(text)
		if found.Percent < leastKnown {
			unknown = append(unknown, e.Name())
		}
		for _, m := range found.Match {
			known = append(known, m.ID)
		}
	}
	return known, unknown
}

// linked returns a line about the module of each package of other modules that programs link.
func linked(t *testing.T, arch, format string, programs ...string) string {
	t.Helper()
	list := exec.Command("go", append([]string{
		"list", "-deps", "-tags", "grpcnotrace", "-f", "{{with .Module}}{{if not .Main}}" + format + "{{end}}{{end}}"}, programs...)...)
	list.Dir, list.Env = "../..", append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	out, err := list.Output()
	must.Succeed(t, err)
	return string(out)
}

// TestLinked compares the numbers of packages in docs/dependencies.md with what the programs link.
func TestLinked(t *testing.T) {
	counts := map[string]*[2]int{}
	for i, program := range []string{"./cmd/pilot-discovery", "./cmd/pilot-agent"} {
		for _, module := range strings.Fields(linked(t, "amd64", "{{.Path}}", program)) {
			if counts[module] == nil {
				counts[module] = &[2]int{}
			}
			counts[module][i]++
		}
	}
	document, err := os.ReadFile("../../docs/dependencies.md")
	must.Succeed(t, err)
	rows := regexp.MustCompile("(?m)^\\| (`[^|]*`) \\| [^|]* \\| ([^|]*) \\| [^|]* \\|$").FindAllStringSubmatch(string(document), -1)
	if len(rows) < 20 {
		t.Fatalf("docs/dependencies.md has %d rows with numbers", len(rows))
	}
	for _, row := range rows {
		var programs []string
		for i := range 2 {
			var numbers []string
			for _, module := range strings.Split(row[1], ", ") {
				if n := counts[strings.Trim(module, "`")]; n == nil || n[i] == 0 {
					numbers = append(numbers, "–")
				} else {
					numbers = append(numbers, strconv.Itoa(n[i]))
				}
			}
			programs = append(programs, strings.Join(numbers, " and "))
		}
		want := strings.Join(programs, ", ")
		want = regexp.MustCompile("–( and –)+").ReplaceAllString(want, "–")
		if row[2] != want {
			t.Errorf("docs/dependencies.md says that %s is linked with %q packages, and it is %q", row[1], row[2], want)
		}
	}
}

// TestLicences compares the licences of the modules that the programs link with the list in docs/dependencies.md.
func TestLicences(t *testing.T) {
	document, err := os.ReadFile("../../docs/dependencies.md")
	must.Succeed(t, err)
	allowed := map[string]bool{}
	_, section, _ := strings.Cut(string(document), "\n## Licences\n")
	for _, item := range regexp.MustCompile("(?m)^- (`.*`): ").FindAllStringSubmatch(section, -1) {
		for _, name := range strings.Split(item[1], ", ") {
			allowed[strings.Trim(name, "`")] = false
		}
	}
	folders := map[string]string{}
	for _, arch := range []string{"amd64", "arm64"} {
		for module := range strings.Lines(linked(t, arch, "{{.Path}} {{.Dir}}", "./cmd/pilot-discovery", "./cmd/pilot-agent")) {
			path, dir, _ := strings.Cut(strings.TrimSpace(module), " ")
			folders[path] = dir
		}
	}
	if len(folders) < 50 {
		t.Fatalf("the programs link %d modules", len(folders))
	}
	for module, dir := range folders {
		known, unknown := licences(t, dir)
		if len(known) == 0 || len(unknown) > 0 {
			t.Errorf("%s has no known licence: %s", module, cmp.Or(strings.Join(unknown, ", "), "there is no file"))
		}
		for _, licence := range known {
			if _, ok := allowed[licence]; !ok {
				t.Errorf("%s has the licence %s, which the section Licences of docs/dependencies.md does not have", module, licence)
			}
			allowed[licence] = true
		}
	}
	for licence, used := range allowed {
		if !used {
			t.Errorf("docs/dependencies.md allows %s, which no module has", licence)
		}
	}
}

// Licences that a module may not have, or that nothing knows, are seen.
func TestOtherLicences(t *testing.T) {
	gpl := "This program is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License as " +
		"published by the Free Software Foundation, either version 3 of the License, or (at your option) any later version."
	for _, test := range []struct {
		name, text string
		known      []string
		unknown    []string
	}{
		{"COPYING", gpl, []string{"GPL-3.0-or-later"}, nil},
		{"LICENSE.md", "Do what you like on Sundays, and on Mondays pay the author what seems fair.", nil, []string{"LICENSE.md"}},
		{"README.md", gpl, nil, nil},
	} {
		dir := t.TempDir()
		must.Succeed(t, os.WriteFile(filepath.Join(dir, test.name), []byte(test.text), 0o644))
		if known, unknown := licences(t, dir); !slices.Equal(known, test.known) || !slices.Equal(unknown, test.unknown) {
			t.Errorf("%s: %v, %v, want %v, %v", test.name, known, unknown, test.known, test.unknown)
		}
	}
}
