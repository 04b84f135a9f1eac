package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// requestTimeout bounds a request to the admin API. Profiles and dumps take long.
const requestTimeout = time.Minute

func requestCommand() *cobra.Command {
	var port uint16
	c := &cobra.Command{
		Use:   "request METHOD PATH [BODY]",
		Short: "Send a request to Envoy's admin API, or another port of this pod",
		Example: `  pilot-agent request GET /config_dump
  pilot-agent request GET /healthz/ready --debug-port 15021
  pilot-agent request POST /logging?level=debug`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(c *cobra.Command, args []string) error {
			var body io.Reader
			if len(args) == 3 {
				body = strings.NewReader(args[2])
			}
			ctx, cancel := context.WithTimeout(c.Context(), requestTimeout)
			defer cancel()
			url := fmt.Sprintf("http://localhost:%d/%s", port, strings.TrimPrefix(args[1], "/"))
			req, err := http.NewRequestWithContext(ctx, strings.ToUpper(args[0]), url, body)
			if err != nil {
				return fmt.Errorf("failed to send the request: %w", err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return fmt.Errorf("failed to send the request: %w", err)
			}
			defer resp.Body.Close()
			if resp.StatusCode >= http.StatusMultipleChoices {
				text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
				return fmt.Errorf("%s: %s: %s", url, resp.Status, strings.TrimSpace(string(text)))
			}
			_, err = io.Copy(c.OutOrStdout(), resp.Body)
			return err
		},
	}
	c.Flags().Uint16Var(&port, "debug-port", 15000, "port on this host; 15000 is Envoy's admin API and 15020 the agent's status port")
	return c
}

func waitCommand() *cobra.Command {
	var url string
	var period, timeout, limit int
	c := &cobra.Command{
		Use:   "wait",
		Short: "Wait until Envoy is ready",
		Example: `  pilot-agent wait
  pilot-agent wait --timeoutSeconds 10`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if period <= 0 || timeout <= 0 || limit <= 0 {
				return errors.New("--periodMillis, --requestTimeoutMillis and --timeoutSeconds: write numbers above 0")
			}
			ctx, cancel := context.WithTimeout(c.Context(), time.Duration(limit)*time.Second)
			defer cancel()
			for {
				err := ready(ctx, url, time.Duration(timeout)*time.Millisecond)
				if err == nil {
					return nil
				}
				select {
				case <-ctx.Done():
					return fmt.Errorf("Envoy is not ready after %d s: %w", limit, err)
				case <-time.After(time.Duration(period) * time.Millisecond):
				}
			}
		},
	}
	c.Flags().StringVar(&url, "url", "http://localhost:15021/healthz/ready", "URL that returns status 200 when Envoy is ready")
	c.Flags().IntVar(&period, "periodMillis", 500, "milliseconds between two requests")
	c.Flags().IntVar(&timeout, "requestTimeoutMillis", 500, "milliseconds to wait for a response")
	c.Flags().IntVar(&limit, "timeoutSeconds", 60, "maximum number of seconds to wait")
	return c
}

// ready makes one request, and returns nil if the response has the status 200.
func ready(ctx context.Context, url string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	return nil
}
