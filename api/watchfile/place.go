package watchfile

import (
	"os"
	"path/filepath"
	"strings"
)

// maxLinks bounds the links that are followed for one path.
const maxLinks = 40

// places are the directories to watch, with their Stamps, and the names that matter in each. If a watched directory is
// one of these names, everything in it matters.
type places struct {
	dirs  map[string]Stamp
	names map[string]bool
}

// placesOf returns the directories that determine which files paths lead to.
func placesOf(paths []string) places {
	p := places{map[string]Stamp{}, map[string]bool{}}
	for _, path := range paths {
		if whole, err := filepath.Abs(path); err == nil {
			p.add(whole, maxLinks)
		}
	}
	return p
}

// add follows one absolute path, name by name. It adds the directory of each link, of the file, and of the first name
// that does not exist.
func (p *places) add(path string, links int) {
	dir := string(filepath.Separator)
	for rest := strings.TrimPrefix(path, dir); rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, string(filepath.Separator))
		at := filepath.Join(dir, name)
		info, err := os.Lstat(at)
		if err != nil || info.Mode()&os.ModeSymlink != 0 || rest == "" {
			p.dirs[dir], p.names[at] = StampAt(dir).identity(), true
		}
		switch {
		case err != nil:
			return
		case info.Mode()&os.ModeSymlink != 0:
			to, err := os.Readlink(at)
			if err != nil || links == 0 {
				return
			}
			if !filepath.IsAbs(to) {
				to = filepath.Join(dir, to)
			}
			p.add(filepath.Join(to, rest), links-1)
			return
		case rest == "" && info.IsDir():
			p.dirs[at], p.names[at+string(filepath.Separator)] = StampOf(info).identity(), true
		}
		dir = at
	}
}

// matter reports whether an event for a name may change which files the paths lead to.
func (p *places) matter(name string) bool {
	name = filepath.Clean(name)
	_, dir := p.dirs[name]
	return dir || p.names == nil || p.names[name] || p.names[filepath.Dir(name)+string(filepath.Separator)]
}
