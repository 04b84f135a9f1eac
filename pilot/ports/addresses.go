package ports

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Addresses are the addresses of the open ports, host:port, or empty for closed ports.
type Addresses struct {
	GRPC       string `json:"grpc"`
	SecureGRPC string `json:"secureGrpc"`
	HTTP       string `json:"http"`
	HTTPS      string `json:"https"`
	Monitoring string `json:"monitoring"`
	ControlZ   string `json:"controlz,omitempty"`
}

// Write writes the addresses to a file atomically.
func (a Addresses) Write(path string) error {
	text, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write the addresses: %w", err)
	}
	_, err = tmp.Write(append(text, '\n'))
	if e := tmp.Close(); err == nil {
		err = e
	}
	if err == nil {
		// The process that reads the file may run as another user.
		err = os.Chmod(tmp.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("write the addresses: %w", err)
	}
	return nil
}
