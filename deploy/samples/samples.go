package samples

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed bookinfo gateway-api
var files embed.FS

// The samples.
const (
	Bookinfo   = "bookinfo"    // a bookshop, by Istio's own API
	GatewayAPI = "gateway-api" // the bookshop with the Gateway API, and a route of each kind
)

// Copy writes the files of a sample to an existing directory. gateway-api gets new keys and certificates.
func Copy(name, dir string) error {
	entries, err := fs.ReadDir(files, name)
	if err != nil {
		return fmt.Errorf("sample %s: %w", name, err)
	}
	for _, e := range entries {
		content, err := fs.ReadFile(files, name+"/"+e.Name())
		if err != nil {
			return fmt.Errorf("sample %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), content, 0o644); err != nil {
			return fmt.Errorf("copy sample: %w", err)
		}
	}
	if name == GatewayAPI {
		return writeCertificates(dir)
	}
	return nil
}
