package watchfile

import (
	"io/fs"
	"os"
	"syscall"
	"time"
)

// Stamp changes when a file changes, as far as its metadata shows. The zero Stamp belongs to no file.
type Stamp struct {
	Device, Inode uint64
	Size          int64
	Modified      time.Time
}

// StampOf returns the Stamp of a file.
func StampOf(info fs.FileInfo) Stamp {
	s := Stamp{Size: info.Size(), Modified: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Device, s.Inode = uint64(st.Dev), st.Ino //nolint:unconvert // Dev is narrower on other systems
	}
	return s
}

// StampAt returns the Stamp of the file that a path leads to, or the zero Stamp if there is none.
func StampAt(path string) Stamp {
	if info, err := os.Stat(path); err == nil {
		return StampOf(info)
	}
	return Stamp{}
}

// SameFile reports whether both are Stamps of one file, whatever its content.
func (s Stamp) SameFile(t Stamp) bool { return s.Device == t.Device && s.Inode == t.Inode }

// identity returns the part of a Stamp that does not change with the file's content.
func (s Stamp) identity() Stamp { return Stamp{Device: s.Device, Inode: s.Inode} }
