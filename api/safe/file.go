package safe

import (
	"crypto/tls"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/istiod-lite/istiod-lite/api/armor"
)

// Open opens a regular file, or a link to one, for reading. For any other type of file it returns an error that names
// the type, because opening or reading a named pipe or a device may block for ever. A directory can be opened, but not
// read.
func Open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // does not wait for the writer of a pipe
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		err = fmt.Errorf("%s is %s, and not a regular file", path, sort(info.Mode()))
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// sort returns the name of the type of a file with a mode.
func sort(m fs.FileMode) string {
	switch {
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "a special file"
}

// ReadFile is os.ReadFile for the files that Open opens.
func ReadFile(path string) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(f)
}

// ReadBounded is ReadFile for a file of at most limit bytes. A larger file is an error.
func ReadBounded(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		return nil, fmt.Errorf("read %s: larger than %d bytes", path, limit)
	}
	return text, err
}

// KeyPair is armor.KeyPair for the files that Open opens.
func KeyPair(certificate, key string) (tls.Certificate, error) {
	c, err := ReadFile(certificate)
	if err != nil {
		return tls.Certificate{}, err
	}
	k, err := ReadFile(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return armor.KeyPair(c, k)
}
