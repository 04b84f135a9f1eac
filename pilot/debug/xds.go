package debug

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statusv3 "github.com/envoyproxy/go-control-plane/envoy/service/status/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/pilot/authorize"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds"
)

// Resources returns the answer to a peer that requests debug pages over xDS: see xds.World. The types are istiod's:
//
//	istio.io/debug/syncz        a ClientConfig for each proxy; names are ignored
//	istio.io/debug/config_dump  the parts of the config_dump of the proxy POD.NAMESPACE that the only name gives
//	istio.io/debug              the page that the only name gives, with its query, as JSON: edsz?proxyID=web.a
//
// Errors in the request, such as a proxy that is not connected, are text instead of the answer, because tools print
// it. The exception is config_dump: like istiod, it has no parts for a proxy that is not connected. istioctl then
// reports a missing dump, and would compare a text with the proxy's configuration.
func (a *API) Resources(peer identity.Peer, typeURL string, names []string) ([]*anypb.Any, error) {
	q, err := a.question(typeURL, names)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	// This check first avoids a list of the streams for peers that may read the page about no proxy.
	about := a.describePage(q.page)
	about.Namespace = peer.ID.Namespace
	if err := a.o.Authorizer.Debug(peer, about); err != nil {
		return nil, err
	}
	about.Namespace = ""
	if c, err := a.proxy(q.query); err == nil {
		about.Namespace, q.query["proxyID"] = c.Proxy.Namespace, []string{c.ID} // the answer is about the same stream
	}
	a.aboutObject(peer, &about, q.query)
	if err := a.o.Authorizer.Debug(peer, about); err != nil {
		return nil, err
	}
	answer, err := a.answer(q, typeURL)
	if errors.Is(err, ErrUnknownPage) || errors.Is(err, ErrNoProxyID) || errors.Is(err, ErrNotConnected) || errors.Is(err, ErrBadQuery) {
		return []*anypb.Any{{TypeUrl: typeURL, Value: []byte(err.Error())}}, nil
	} else if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return answer, nil
}

// question is a request over xDS for a page with its query.
type question struct {
	page  string
	query url.Values
	typed bool // in the format of the page's own type
}

// question parses a type and names.
func (a *API) question(typeURL string, names []string) (q question, err error) {
	p, _ := a.page(strings.TrimPrefix(typeURL, xds.DebugType+"/"))
	if p.overADS != nil && !p.proxy {
		return question{p.name, url.Values{}, true}, nil
	}
	if len(names) != 1 {
		return q, fmt.Errorf("%s wants exactly one resource name", typeURL)
	}
	if p.overADS != nil {
		return question{p.name, url.Values{"proxyID": names}, true}, nil
	}
	page, rest, _ := strings.Cut(names[0], "?")
	if page == replicasPage {
		page = "" // not served over xDS
	}
	query, err := url.ParseQuery(rest)
	if err != nil {
		return q, fmt.Errorf("the query of %q: %w", names[0], err)
	}
	ofOneReplica(page, query) // a replica never passes a question on
	return question{page, query, false}, nil
}

// answer answers a question. The answer has the type typeURL unless the page has its own type.
func (a *API) answer(q question, typeURL string) ([]*anypb.Any, error) {
	if p, _ := a.page(q.page); q.typed {
		return p.overADS(q.query)
	}
	v, err := a.Answer(q.page, q.query)
	if err != nil {
		return nil, err
	}
	if text, ok := v.(plain); ok {
		return []*anypb.Any{{TypeUrl: typeURL, Value: []byte(text)}}, nil
	}
	body, err := json.Marshal(v)
	return []*anypb.Any{{TypeUrl: typeURL, Value: body}}, err
}

// dumpParts returns the parts of a proxy's config_dump. A proxy that is not connected has none.
func (a *API) dumpParts(query url.Values) ([]*anypb.Any, error) {
	dump, err := a.dump(query)
	if errors.Is(err, ErrNotConnected) {
		return []*anypb.Any{}, nil
	}
	return dump.GetConfigs(), err
}

// describePage describes a page to the Authorizer, without a proxy.
func (a *API) describePage(name string) authorize.Page {
	p, _ := a.page(name)
	return authorize.Page{Name: name, OwnProxy: p.ownProxyOnly, OwnObject: p.ownObject}
}

// clientConfigs returns the status of each proxy in the format that istioctl proxy-status reads.
func (a *API) clientConfigs(url.Values) ([]*anypb.Any, error) {
	out := []*anypb.Any{}
	for _, c := range a.o.Proxies.Clients() {
		if c.Proxy.Generator != "" {
			continue // another control plane, or a tool
		}
		m := &statusv3.ClientConfig{Node: &corev3.Node{Id: c.Proxy.ID, Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			"CLUSTER_ID": structpb.NewStringValue(c.Proxy.Cluster), "NAMESPACE": structpb.NewStringValue(c.Proxy.Namespace),
			"ISTIO_VERSION": structpb.NewStringValue(c.Proxy.Version),
		}}}}
		for _, typeURL := range []string{envoy.ClusterType, envoy.ListenerType, envoy.EndpointType, envoy.RouteType, envoy.ExtensionType} {
			m.GenericXdsConfigs = append(m.GenericXdsConfigs, genericConfig(c, typeURL))
		}
		packed, err := anypb.New(m)
		if err != nil {
			return nil, err
		}
		out = append(out, packed)
	}
	return out, nil
}

func genericConfig(c xds.Client, typeURL string) *statusv3.ClientConfig_GenericXdsConfig {
	t, watched := c.Types[typeURL]
	g := &statusv3.ClientConfig_GenericXdsConfig{TypeUrl: typeURL, ConfigStatus: statusv3.ConfigStatus_NOT_SENT}
	if !watched {
		return g
	}
	switch StatusOf(typeURL, t).State {
	case Synced:
		g.ConfigStatus = statusv3.ConfigStatus_SYNCED
	case Stale:
		g.ConfigStatus = statusv3.ConfigStatus_STALE
	case Failed:
		g.ConfigStatus = statusv3.ConfigStatus_ERROR
		g.ErrorState = &adminv3.UpdateFailureState{
			Details: t.LastError, VersionInfo: t.Version, LastUpdateAttempt: timestamppb.New(t.LastErrorAt),
		}
	}
	if !t.SentAt.IsZero() {
		g.LastUpdated = timestamppb.New(t.SentAt)
	}
	return g
}
