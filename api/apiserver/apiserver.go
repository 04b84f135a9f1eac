package apiserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"
)

// maxAnswer bounds a response in bytes.
const maxAnswer = 1 << 20

// Client is a client of one API server. Its rate is not limited. Safe for concurrent use.
type Client struct {
	http *http.Client
	base *url.URL
}

// New returns the client of a configuration. It follows no redirects, because another cluster's API server could
// redirect this process to any address.
func New(c *rest.Config) (*Client, error) {
	shared, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, err
	}
	own := *shared // it may be http.DefaultClient
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	base, _, err := rest.DefaultServerUrlFor(c)
	return &Client{&own, base}, err
}

// Get returns the answer to a GET of a path.
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, path, nil)
}

// Review posts an object to a path, and decodes the answer into it: the API server completes the status of a review.
func (c *Client) Review(ctx context.Context, path string, review any) error {
	question, err := json.Marshal(review)
	if err != nil {
		return err
	}
	answer, err := c.do(ctx, http.MethodPost, path, question)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, review)
}

// do returns the body of a response. If the status is not a success, it returns an error with the API server's message.
func (c *Client) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil || answer.StatusCode/100 == 2 {
		return text, err
	}
	var status struct{ Message string }
	_ = json.Unmarshal(text, &status) // the body may be no Status
	return nil, fmt.Errorf("%s answers %d: %s", path, answer.StatusCode, cmp.Or(status.Message, http.StatusText(answer.StatusCode)))
}
