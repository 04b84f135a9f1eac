package debug

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/pilot/progress"
	"github.com/istiod-lite/istiod-lite/pilot/replicas"
)

// replicasPage is the page with the answers of all replicas. It is not served over xDS, by which replicas ask each
// other, so that a replica never passes a question on.
const replicasPage = "replicas"

// Replicas are the other replicas of this control plane: a *replicas.Replicas.
type Replicas interface {
	// Ask asks all other replicas for a page with its query, such as pushes?limit=5.
	Ask(ctx context.Context, question string) []replicas.Answer
}

// Replica is the answer of one replica.
type Replica struct {
	Name    string          `json:"name"`
	Address string          `json:"address,omitempty"` // address of its secure port; empty for the server that is asked
	Version string          `json:"version,omitempty"` // empty if it did not answer
	Self    bool            `json:"self,omitempty"`    // the server that is asked
	Error   string          `json:"error,omitempty"`   // why it did not answer
	Answer  json.RawMessage `json:"answer,omitempty"`  // the page; missing if Error is set
}

// sharedPages are the pages that replicas can be asked for. They must not change anything.
func sharedPages() []string {
	return []string{"adsz", "authorizationz", "connections", progress.HistoryPage, progress.InForcePage, "pushes", "syncz"}
}

// ofOneReplica limits the query of a page about all replicas to the replica that is asked.
func ofOneReplica(page string, query url.Values) {
	if page == progress.InForcePage || page == progress.HistoryPage {
		query.Set("scope", "self")
	}
}

// replicas returns the answer of each replica for the page that the parameter page names, by default syncz: this
// replica first, then the others by name.
func (a *API) replicas(query url.Values) (any, error) {
	page := cmp.Or(query.Get("page"), "syncz")
	if !slices.Contains(sharedPages(), page) || page == "adsz" && query.Has("push") {
		return nil, fmt.Errorf("%w: page=%.64s is none of %s, which change nothing", ErrBadQuery, page, strings.Join(sharedPages(), ", "))
	}
	query.Del("page")
	ofOneReplica(page, query)
	question := page + "?" + query.Encode()
	own := Replica{Name: a.o.Name, Version: a.o.Version, Self: true}
	v, err := a.Answer(page, query)
	if err == nil {
		own.Answer, err = json.Marshal(v)
	}
	if errors.Is(err, ErrBadQuery) {
		return nil, err
	} else if err != nil {
		own.Error = err.Error()
	}
	list := []Replica{own}
	if a.o.Replicas != nil {
		list = append(list, ReplicasOf(a.o.Replicas.Ask(a.closing, question))...)
	}
	return list, nil
}

// ReplicasOf converts the answers of replicas.
func ReplicasOf(answers []replicas.Answer) (list []Replica) {
	for _, x := range answers {
		r := Replica{Name: x.Name, Address: x.Address, Version: x.Version, Answer: x.JSON}
		if x.Err != nil {
			r.Error = x.Err.Error()
		}
		list = append(list, r)
	}
	return list
}

// Getter returns the status and the body of a path of a server.
type Getter func(ctx context.Context, path string) (status int, text []byte, err error)

// AskAll returns the answer of each replica for a page with its query, such as pushes?limit=5. An older server without
// the page replicas answers for itself.
func AskAll(ctx context.Context, get Getter, question string) ([]Replica, error) {
	page, query, _ := strings.Cut(question, "?")
	path := "/debug/" + replicasPage + "?page=" + page
	if query != "" {
		path += "&" + query
	}
	status, text, err := get(ctx, path)
	if err == nil && status == http.StatusNotFound {
		path = "/debug/" + question
		status, text, err = get(ctx, path)
		if err == nil && status == http.StatusOK {
			return []Replica{{Self: true, Answer: text}}, nil
		}
	}
	switch {
	case err != nil:
		return nil, err
	case status != http.StatusOK:
		return nil, fmt.Errorf("%s: %d: %s", path, status, strings.TrimSpace(string(text)))
	}
	var list []Replica
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}

// ReadAll decodes the answers of replicas as values of one type, and calls take for each. It ignores unknown fields. It
// sets Error of a replica whose answer cannot be decoded. It fails if the answer of the asked server cannot be decoded.
func ReadAll[T any](list []Replica, take func(r *Replica, v T)) error {
	for i := range list {
		r := &list[i]
		if r.Error != "" {
			continue
		}
		var v T
		if err := json.Unmarshal(r.Answer, &v); err != nil {
			if r.Self {
				return errors.Join(errors.New("failed to read the answer of the server"), err)
			}
			r.Error = "its answer cannot be read: " + err.Error()
			continue
		}
		take(r, v)
	}
	return nil
}

// ReadProxies decodes the answers of replicas to syncz. If there are several replicas, each proxy has the name of its
// replica.
func ReadProxies(list []Replica) (all []ProxyStatus, err error) {
	err = ReadAll(list, func(r *Replica, proxies []ProxyStatus) {
		for _, p := range proxies {
			if len(list) > 1 || !r.Self {
				p.Replica = r.Name
			}
			all = append(all, p)
		}
	})
	return all, err
}

// Incomplete returns a line for each replica that did not answer, and for each replica whose version differs from the
// asked server's.
func Incomplete(list []Replica) (lines []string) {
	for _, r := range list {
		switch {
		case r.Error != "":
			lines = append(lines, fmt.Sprintf("%s did not answer: %s", r.Name, r.Error))
		case r.Version != list[0].Version:
			lines = append(lines, fmt.Sprintf("%s is of version %s, and %s of %s", r.Name, r.Version, list[0].Name, list[0].Version))
		}
	}
	return lines
}
