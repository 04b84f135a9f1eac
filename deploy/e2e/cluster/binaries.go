package cluster

import (
	"errors"
	"path/filepath"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/binaries"
)

// Binaries are the paths of the two programs.
type Binaries struct {
	Etcd      string
	APIServer string
}

// Find returns the programs that ETCD and KUBE_APISERVER name. By default they are the ones that make has put into
// .tools. It must be called from within the module.
func Find() (Binaries, error) {
	etcd, err := binaries.Tool("etcd", "ETCD")
	if err != nil {
		return Binaries{}, err
	}
	apiServer, err := binaries.Tool("kube-apiserver", "KUBE_APISERVER")
	return Binaries{Etcd: etcd, APIServer: apiServer}, err
}

// CopyTo copies the programs to a folder, for users who cannot read the originals.
func (b Binaries) CopyTo(dir string) (Binaries, error) {
	to := Binaries{Etcd: filepath.Join(dir, "etcd"), APIServer: filepath.Join(dir, "kube-apiserver")}
	return to, errors.Join(binaries.Copy(to.Etcd, b.Etcd), binaries.Copy(to.APIServer, b.APIServer))
}

// Environ returns the environment with which Find returns these programs in another process.
func (b Binaries) Environ() []string {
	return []string{"ETCD=" + b.Etcd, "KUBE_APISERVER=" + b.APIServer}
}
