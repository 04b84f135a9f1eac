package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/istiod-lite/istiod-lite/deploy/freeport"
)

const etcdHost = "127.0.0.1"

func (c *Cluster) startEtcd(ctx context.Context) error {
	client, err := freeport.Pick(ctx, etcdHost)
	if err != nil {
		return err
	}
	peer, err := freeport.Pick(ctx, etcdHost)
	if err != nil {
		return err
	}
	// The name distinguishes this member from one of another test that may have taken the port first.
	name := "etcd-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	peerURL := "http://" + etcdHost + ":" + peer
	c.etcdURL = "http://" + etcdHost + ":" + client
	ready := func(ctx context.Context) error { return c.etcdReady(ctx, name) }
	c.etcd = &process{name: "etcd", binary: c.o.Binaries.Etcd, logFile: c.path("etcd.log"), ready: ready, args: append([]string{
		"--name=" + name,
		"--data-dir=" + c.path(name),
		"--listen-client-urls=" + c.etcdURL,
		"--advertise-client-urls=" + c.etcdURL,
		"--listen-peer-urls=" + peerURL,
		"--initial-advertise-peer-urls=" + peerURL,
		"--initial-cluster=" + name + "=" + peerURL,
		"--unsafe-no-fsync",
		"--log-level=warn",
	}, c.o.EtcdArgs...)}
	return c.etcd.start(ctx)
}

func (c *Cluster) etcdReady(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var list struct {
		Members []struct {
			Name string `json:"name"`
		} `json:"members"`
	}
	if err := c.askEtcd(ctx, "/v3/cluster/member/list", map[string]any{}, &list); err != nil {
		return err
	}
	if len(list.Members) != 1 || list.Members[0].Name != name {
		return fmt.Errorf("another etcd answers: %v", list.Members)
	}
	_, err := c.revision(ctx)
	return err
}

// Compact removes all history from etcd. kube-apiserver keeps some of it in its watch caches until it restarts:
// ForgetHistory does both.
func (c *Cluster) Compact(ctx context.Context) error {
	now, err := c.revision(ctx)
	if err != nil {
		return err
	}
	return c.askEtcd(ctx, "/v3/kv/compaction", map[string]any{"revision": now, "physical": true}, nil)
}

// ForgetHistory removes all history from etcd and kube-apiserver. A watch from an earlier resourceVersion then gets 410
// Gone.
func (c *Cluster) ForgetHistory(ctx context.Context) error {
	c.KillAPIServer()
	if err := c.advance(ctx); err != nil {
		return err
	}
	if err := c.Compact(ctx); err != nil {
		return err
	}
	return c.StartAPIServer(ctx)
}

// advance creates a revision without an object, so that every known resourceVersion is in the past.
func (c *Cluster) advance(ctx context.Context) error {
	return c.askEtcd(ctx, "/v3/kv/put", map[string]any{"key": []byte("/e2e"), "value": []byte("x")}, nil)
}

// revision returns the revision of etcd's store, which is kube-apiserver's resourceVersion.
func (c *Cluster) revision(ctx context.Context) (string, error) {
	var answer struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	err := c.askEtcd(ctx, "/v3/kv/range", map[string]any{"key": []byte("/e2e"), "count_only": true}, &answer)
	return answer.Header.Revision, err
}

// askEtcd calls etcd's gRPC through its JSON gateway.
func (c *Cluster) askEtcd(ctx context.Context, path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("ask etcd: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.etcdURL+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask etcd: %w", err)
	}
	req.Close = true // no connection must outlive the cluster
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask etcd: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var said bytes.Buffer
		_, _ = said.ReadFrom(resp.Body)
		return fmt.Errorf("ask etcd: %s: %s: %s", path, resp.Status, said.String())
	}
	if answer == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return fmt.Errorf("ask etcd: %w", err)
	}
	return nil
}
