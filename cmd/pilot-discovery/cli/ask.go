package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/istiod-lite/istiod-lite/pilot/debug"
)

// AddressFlag adds the flag that names the server to ask.
func AddressFlag(c *cobra.Command, address *string) {
	c.Flags().StringVar(address, "address", "127.0.0.1:15014", "host and port of the server's --monitoringAddr")
}

// StatusError is a response of a server with an HTTP status that reports a failure.
type StatusError struct {
	Code int
	text string
}

func (e *StatusError) Error() string { return e.text }

// Ask sends a request to a server on this host, and passes the body of the response to read.
func Ask(ctx context.Context, method, address, path string, read func(io.Reader) error) error {
	return AskAs(ctx, "", method, address, path, read)
}

// AskAs sends a request with a bearer token, unless that is empty, and passes the body of the response to read.
func AskAs(ctx context.Context, token, method, address, path string, read func(io.Reader) error) error {
	return do(ctx, 60*time.Second, token, method, address, path, func(resp *http.Response) error {
		if resp.StatusCode >= 400 {
			text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
			return &StatusError{resp.StatusCode, fmt.Sprintf("%s: %s", resp.Status, strings.TrimSpace(string(text)))}
		}
		return read(resp.Body)
	})
}

// Getter returns a function that requests a path from an address on this host over HTTP.
func Getter(address string) func(ctx context.Context, path string) (int, []byte, error) {
	return func(ctx context.Context, path string) (code int, text []byte, err error) {
		err = do(ctx, 0, "", http.MethodGet, address, path, func(resp *http.Response) error {
			code = resp.StatusCode
			text, err = io.ReadAll(resp.Body)
			return err
		})
		return code, text, err
	}
}

// cause returns the reason of a failed request without its URL, which the caller names.
func cause(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// defaultPort is the port of --monitoringAddr.
const defaultPort = "15014"

// hostPort returns the host and port of an address, which may be a URL and may have no port.
func hostPort(address string) (string, error) {
	text, isURL := strings.CutPrefix(address, "http://")
	if isURL {
		text = strings.TrimSuffix(text, "/")
	}
	if strings.ContainsAny(text, "/?#@ ") {
		return "", fmt.Errorf("--address=%s: write HOST:PORT, such as 127.0.0.1:%s", Quoted(address), defaultPort)
	}
	if _, _, err := net.SplitHostPort(text); err != nil {
		return net.JoinHostPort(strings.Trim(text, "[]"), defaultPort), nil
	}
	return text, nil
}

// do sends a request to a server, and passes the response to read. The zero timeout means none besides the context's.
func do(ctx context.Context, timeout time.Duration, token, method, address, path string, read func(*http.Response) error) error {
	address, err := hostPort(address)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, strings.ToUpper(method), "http://"+address+"/"+strings.TrimPrefix(path, "/"), http.NoBody)
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	// It ignores the environment's HTTP proxy, because the server is on this host or in the same cluster.
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("no server answers at %s: %w: name the host and port of its --monitoringAddr by --address", address, cause(err))
	}
	defer resp.Body.Close()
	return read(resp)
}

// CompletionTimeout is the time limit for looking up names for a shell.
const CompletionTimeout = 2 * time.Second

// AskPage reads a page of a server for a completion. It returns false if there is no server, in which case the shell
// offers no names.
func AskPage(c *cobra.Command, address, path string, into any) bool {
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, CompletionTimeout)
	defer cancel()
	return Ask(ctx, http.MethodGet, address, path, func(body io.Reader) error { return json.NewDecoder(body).Decode(into) }) == nil
}

// Connected returns the names of the proxies that are connected to a server.
func Connected(c *cobra.Command, address string) []string {
	var all []debug.ProxyStatus
	AskPage(c, address, "/debug/syncz", &all)
	names := []string{}
	for _, p := range all {
		names = append(names, p.ProxyID)
	}
	return names
}
