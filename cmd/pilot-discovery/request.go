package main

import (
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
			url := "http://" + address + "/" + strings.TrimPrefix(args[1], "/")
			req, err := http.NewRequestWithContext(c.Context(), strings.ToUpper(args[0]), url, http.NoBody)
			if err != nil {
				return err
			}
			// No proxy of the environment: the server is on this host.
			client := &http.Client{Timeout: 60 * time.Second, Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if resp.StatusCode >= 400 {
				text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
				return fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(text)))
			}
			_, err = io.Copy(c.OutOrStdout(), resp.Body)
			return err
		},
	}
	c.Flags().StringVar(&address, "address", "127.0.0.1:15014", "host and port of the server's --monitoringAddr")
	return c
}
