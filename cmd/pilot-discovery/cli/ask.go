package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/istiod-lite/istiod-lite/cmd/terminal"
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

// maxBody is the maximum number of bytes of an answer that a command keeps in memory.
const maxBody = 64 << 20

// maxReason is the maximum number of bytes that a command prints of the reason of a failure.
const maxReason = 4 << 10

// requestTimeout limits the time of a request, in addition to the deadline of its context.
const requestTimeout = 60 * time.Second

// Ask sends a request to a server on this host, and passes the body of the response to read. The body may be endless,
// so read must not keep all of it.
func Ask(ctx context.Context, method, address, path string, read func(io.Reader) error) error {
	return do(ctx, requestTimeout, "", method, address, path, func(resp *http.Response) error {
		if err := failure(resp); err != nil {
			return err
		}
		return read(resp.Body)
	})
}

// Read returns a page of a server. It sends a bearer token unless the token is empty.
func Read(ctx context.Context, token, address, path string) (text []byte, err error) {
	err = do(ctx, requestTimeout, token, http.MethodGet, address, path, func(resp *http.Response) error {
		if err := failure(resp); err != nil {
			return err
		}
		text, err = body(resp)
		return err
	})
	return text, err
}

// Page reads a page of JSON for a command with an output format, as Read and Decode do.
func Page(ctx context.Context, token, address, path, output string, into any) error {
	text, err := Read(ctx, token, address, path)
	if err == nil {
		err = Decode(text, output, into)
	}
	return err
}

// Getter returns a function that requests a path from an address on this host over HTTP. The text that it returns must
// not be printed to a terminal: see Pages.
func Getter(address string) debug.Getter {
	return func(ctx context.Context, path string) (code int, text []byte, err error) {
		err = do(ctx, 0, "", http.MethodGet, address, path, func(resp *http.Response) error {
			code = resp.StatusCode
			text, err = body(resp)
			return err
		})
		return code, text, err
	}
}

// Pages is Getter for pages of JSON that a command prints in an output format. Unless the format is for programs, it
// makes the strings plain as Decode does.
func Pages(address, output string) debug.Getter {
	get := Getter(address)
	return func(ctx context.Context, path string) (code int, text []byte, err error) {
		code, text, err = get(ctx, path)
		switch {
		case err != nil:
		case code >= http.StatusBadRequest:
			text = []byte(terminal.Plain(string(text[:min(maxReason, len(text))])))
		case !structured(output):
			text = plainJSON(text)
		}
		return code, text, err
	}
}

// failure returns the error of a response with an HTTP status that reports a failure.
func failure(resp *http.Response) error {
	if resp.StatusCode < http.StatusBadRequest {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxReason))
	return &StatusError{resp.StatusCode, terminal.Plain(fmt.Sprintf("%s: %s", resp.Status, strings.TrimSpace(string(text))))}
}

// body returns the body of a response, or an error if it is too large.
func body(resp *http.Response) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err == nil && len(text) > maxBody {
		err = fmt.Errorf("the answer of %s has more than %d MiB", resp.Request.URL.Host, maxBody>>20)
	}
	return text, err
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
	return Page(ctx, "", address, path, "name", into) == nil
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
