package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// client sends requests to a URL, each on its own connection, and prints the answers, with an empty line after each.
func client(args []string) error {
	f := flags("client")
	method := f.String("method", http.MethodGet, "of HTTP")
	header := f.StringArrayP("header", "H", nil, "name:value")
	count := f.Int("count", 1, "of requests")
	timeout := f.Duration("timeout", 15*time.Second, "of each request")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 1 {
		return errors.New("name one URL")
	}
	u, err := url.Parse(f.Arg(0))
	if err != nil {
		return err
	}
	send := sendHTTP
	switch u.Scheme {
	case "grpc":
		send = sendRPC
	case "tcp":
		send = sendTCP
	}
	h := http.Header{}
	for _, text := range *header {
		name, value, _ := strings.Cut(text, ":")
		h.Add(name, strings.TrimSpace(value))
	}
	for i := range *count {
		ctx, cancel := context.WithTimeout(context.Background(), *timeout)
		answer, err := send(ctx, u, *method, h)
		cancel()
		if err != nil {
			return err
		}
		var out strings.Builder
		fmt.Fprintf(&out, "[%d] Url=%s\n", i, u)
		for line := range strings.SplitSeq(strings.TrimSpace(answer), "\n") {
			if line != "" {
				fmt.Fprintf(&out, "[%d body] %s\n", i, line)
			}
		}
		if _, err := fmt.Fprintln(os.Stdout, out.String()); err != nil {
			return err
		}
	}
	return nil
}

// sendHTTP follows no redirect.
func sendHTTP(ctx context.Context, u *url.URL, method string, h http.Header) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return "", err
	}
	req.Header, req.Host = h.Clone(), h.Get("Host")
	req.Header.Del("Host")
	c := &http.Client{
		// the server's certificate is self-signed
		Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	var out bytes.Buffer
	fmt.Fprintf(&out, "StatusCode=%d\n", resp.StatusCode)
	headers(&out, "ResponseHeader", resp.Header)
	out.Write(body)
	return out.String(), err
}

func sendRPC(ctx context.Context, u *url.URL, _ string, h http.Header) (string, error) {
	conn, err := grpc.NewClient(u.Host, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	md := metadata.MD{}
	for name, values := range h {
		md.Append(name, values...)
	}
	out := &wrapperspb.StringValue{}
	err = conn.Invoke(metadata.NewOutgoingContext(ctx, md), "/"+service+"/Echo", wrapperspb.String("hello"), out)
	return out.GetValue(), err
}

func sendTCP(ctx context.Context, u *url.URL, _ string, _ http.Header) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "hello"); err != nil {
		return "", err
	}
	b, err := io.ReadAll(conn)
	return string(b), err
}
