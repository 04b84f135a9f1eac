package binaries

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Set holds the paths of the programs.
type Set struct {
	Dir   string
	Envoy string
	Pilot string
}

// Gather copies Envoy and the control plane to a folder, and opens the folder to all users. ENVOY names Envoy, by
// default .tools/envoy. PILOT_DISCOVERY names the control plane, which is built by default. It must be called from
// within the module.
func Gather(ctx context.Context, dir string) (Set, error) {
	s := Set{Dir: dir, Envoy: filepath.Join(dir, "envoy"), Pilot: filepath.Join(dir, "pilot-discovery")}
	envoy, err := Tool("envoy", "ENVOY")
	if err != nil {
		return s, err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return s, fmt.Errorf("open folder: %w", err)
	}
	if err := Copy(s.Envoy, envoy); err != nil {
		return s, err
	}
	if pilot := os.Getenv("PILOT_DISCOVERY"); pilot != "" {
		return s, Copy(s.Pilot, pilot)
	}
	return s, Build(ctx, s.Pilot, "./cmd/pilot-discovery")
}

// Agent copies the agent to the folder. It is beside PILOT_DISCOVERY, or is built.
func (s Set) Agent(ctx context.Context) (string, error) {
	to := filepath.Join(s.Dir, "pilot-agent")
	if pilot := os.Getenv("PILOT_DISCOVERY"); pilot != "" {
		if from := filepath.Join(filepath.Dir(pilot), "pilot-agent"); Copy(to, from) == nil {
			return to, nil
		}
	}
	return to, Build(ctx, to, "./cmd/pilot-agent")
}

// OldestEnvoy copies the oldest Envoy that supports VHDS to the folder. ENVOY_OLDEST names it, by default
// .tools/envoy-1.37.
func (s Set) OldestEnvoy() (string, error) {
	from, err := Tool("envoy-1.37", "ENVOY_OLDEST")
	if err != nil {
		return "", err
	}
	to := filepath.Join(s.Dir, "envoy-oldest")
	return to, Copy(to, from)
}

// Tool returns the path of a program in .tools, or the path in an environment variable. It must be called from within
// the module.
func Tool(name, variable string) (string, error) {
	path := os.Getenv(variable)
	if path == "" {
		root, err := ModuleRoot()
		if err != nil {
			return "", err
		}
		path = filepath.Join(root, ".tools", name)
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: `make tools` builds it in .tools, or set %s to one of your own", err, variable)
	}
	return path, nil
}

// Program copies a program of another project, built by deploy/tools/module.sh, to a folder, with its manifests if it
// has any. It returns the environment with which Version finds the version. NAME in capital letters is the variable
// with the path of a program that is built elsewhere.
func Program(dir, name string) (environ []string, err error) {
	path, err := Tool(name, variable(name))
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path + ".yaml"); err == nil {
		if err := Copy(filepath.Join(dir, name+".yaml"), path+".yaml"); err != nil {
			return nil, err
		}
	}
	version := "unknown"
	if stamps, err := filepath.Glob(path + ".v*"); err == nil && len(stamps) == 1 {
		version = strings.TrimPrefix(stamps[0], path+".")
	}
	return []string{variable(name) + "_VERSION=" + version}, Copy(filepath.Join(dir, name), path)
}

// Version returns the version of a program that Program copied.
func Version(name string) string { return os.Getenv(variable(name) + "_VERSION") }

// variable returns the variable with the path of a program.
func variable(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }

// Build builds a main package, named relative to the module, without cgo and gRPC's traces, like a release.
func Build(ctx context.Context, to, pkg string) error {
	root, err := ModuleRoot()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "grpcnotrace", "-o", to, pkg)
	cmd.Dir, cmd.Stderr, cmd.Env = root, os.Stderr, append(os.Environ(), "CGO_ENABLED=0")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w", pkg, err)
	}
	return os.Chmod(to, 0o755)
}

// Copy puts a program at a path where all users can run it. It makes a hard link if all users can run the program and
// the file system is the same, and otherwise a copy.
func Copy(to, from string) error {
	if at, err := filepath.EvalSymlinks(from); err == nil {
		if i, err := os.Stat(at); err == nil && i.Mode().Perm()&0o005 == 0o005 && os.Link(at, to) == nil {
			return nil
		}
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("copy a program: %w", err)
	}
	if err := os.WriteFile(to, content, 0o755); err != nil {
		return fmt.Errorf("copy a program: %w", err)
	}
	return nil
}

// ModuleRoot returns the folder of go.mod. It looks from the folder of the package, in which go test runs.
func ModuleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no go.mod above the working directory")
}
