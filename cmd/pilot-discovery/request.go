package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func requestCommand() *cobra.Command {
	var address string
	c := &cobra.Command{
		Use:   "request METHOD PATH",
		Short: "Ask the server that runs here, for example: request GET /debug/syncz",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			return ask(c.Context(), args[0], address, args[1], func(body io.Reader) error {
				_, err := io.Copy(c.OutOrStdout(), body)
				return err
			})
		},
	}
	addressFlag(c, &address)
	return c
}

// addressFlag adds the flag that names the server to ask.
func addressFlag(c *cobra.Command, address *string) {
	c.Flags().StringVar(address, "address", "127.0.0.1:15014", "host and port of the server's --monitoringAddr")
}

// ask sends a request to a server on this host, and passes the answer to read.
func ask(ctx context.Context, method, address, path string, read func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, strings.ToUpper(method), "http://"+address+"/"+strings.TrimPrefix(path, "/"), http.NoBody)
	if err != nil {
		return err
	}
	// No proxy of the environment: the server is on this host.
	client := &http.Client{Timeout: 60 * time.Second, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("%w (is the server's --monitoringAddr %s?)", err, address)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 400 {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	return read(resp.Body)
}
