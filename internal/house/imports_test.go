// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Groups of packages. An entry ending in /... is the package and all below it, one that
// begins with * all packages whose names end so, and one with ! a package that is none of
// them. One that begins with // is all packages with that line in their package comment: those
// of a role say so themselves, so that a role is known to none of these groups.
var (
	codecs  = []string{"//house:codec"}
	engines = []string{"//house:engine", "//house:part"} // parts are shared by engines
	leaves  = []string{"internal/packet", "internal/special", "internal/event", "internal/places", "internal/ratelimit", "internal/retry", "internal/timerqueue", "internal/announce/health", "internal/trace"}
	roles   = []string{"*role"}
	// What the roles of a family share; and the driver, which serves all.
	families = []string{"internal/driver", "//house:shared"}
	runs     = join(families, roles)
	// Edges do their own I/O, or live on libraries that do; what they learn is judged
	// by an engine.
	edges  = []string{"//house:edge"}
	plumbs = []string{
		"internal/port", "internal/host", "internal/kept", "internal/loop", "internal/config", "internal/config/key", "//house:keys", "internal/announce", "internal/announce/bgp", "internal/role", "internal/control", "internal/metrics", "internal/subscriber", "examples",
	}
	// The fast path is eBPF and what feeds it, whatever the programs do; those of a role
	// are beside it. A run package attaches them.
	fastpaths = []string{"fastpath", "fastpath/attach", "fastpath/bypass", "fastpath/follow", "fastpath/netattr", "fastpath/pinned", "fastpath/probe"}
	bpfs      = []string{"*bpf"}
	daemon    = []string{"internal/daemon"}
	labs      = []string{"lab/..."}
	cmds      = []string{"cmd/..."}
	// Doubles stand in for the world in tests; the rules do not bind them.
	doubles = []string{"*test", "internal/testutil/..."}

	pure    = join(leaves, codecs, engines)
	program = join(pure, edges, runs, fastpaths, bpfs, plumbs, daemon, labs, cmds)
)

// rule forbids packages of one group to import those of another.
type rule struct {
	name string
	from []string
	to   []string
	why  string
}

var rules = []rule{
	{
		name: "pure packages do no I/O",
		from: pure,
		to: []string{
			"net", "net/http/...", "os/...", "io/ioutil", "syscall", "log/...",
			"golang.org/x/sys/...", "golang.org/x/net/...",
			"github.com/vishvananda/...", "github.com/mdlayher/...", "github.com/cilium/ebpf/...",
		},
		why: "an engine or codec that sees no socket, file or log can be called from a test, a fuzzer or a simulation with nothing but bytes and a time",
	},
	{
		name: "pure packages share nothing",
		from: pure,
		to:   []string{"sync", "context"},
		why:  "an engine runs in one thread at a time; its run package holds the lock, once for each batch",
	},
	{
		name: "only what a fast path shares is shared",
		from: without(pure, "teredo/peer", "teredo/relay", "translate/ipid", "translate/nat64/state", "gprs/ggsn"),
		to:   []string{"sync/atomic"},
		why:  "the table of trusted peers, the counters of identifications, the state of a NAT64 and the contexts of a GGSN are read and written by several cores and the eBPF fast path at once; nothing else needs that",
	},
	{
		name: "pure packages draw no randomness",
		from: pure,
		to:   []string{"crypto/rand", "math/rand"},
		why:  "randomness is an argument, so that a test can repeat a run; a generator of math/rand/v2 seeded from it is fine",
	},
	{
		name: "engines are seeded by the system",
		from: without(join(runs, edges, daemon), "translate/pref64/discovery"),
		to:   []string{"math/rand/..."},
		why:  "nonces, keys, ports and seeds of hashes keep strangers out, so they come from crypto/rand; the times of router advertisements, which everybody sees, need not",
	},
	{
		name: "pure packages know no plumbing",
		from: pure,
		to:   join(runs, plumbs, daemon),
		why:  "imports point from the daemon to run, engine, codec and packet; an engine takes its own settings, so the configuration file can change without it",
	},
	{
		name: "what serves all roles knows none",
		from: without(join(leaves, plumbs, fastpaths, []string{"internal/driver"}), "//house:keys"),
		to:   without(join(codecs, engines, edges, bpfs, roles, []string{"//house:shared", "//house:keys"}), "github.com/cilium/ebpf"),
		why:  "a role that comes or goes changes nothing that the others stand on",
	},
	{
		name: "codecs know no engine",
		from: codecs,
		to:   engines,
		why:  "a codec is bytes in and values out, for whoever reads the protocol",
	},
	{
		name: "engines know no other engine",
		from: []string{"//house:engine"},
		to:   without([]string{"//house:engine"}, "translate/siit"), // the stateless translator is half of a CLAT
		why:  "roles are run apart; what they share is a codec, a part such as the peer table, or a type of internal/event",
	},
	{
		name: "parts know no engine",
		from: []string{"//house:part"},
		to:   []string{"//house:engine"},
		why:  "several engines stand on them",
	},
	{
		name: "ports are opened by run packages",
		from: join(pure, daemon, []string{"internal/config", "internal/role", "internal/control", "internal/metrics"}),
		to:   []string{"internal/port/..."},
		why:  "sockets and tunnels have one user for each role, its run package, so that all else runs without them",
	},
	{
		name: "plumbing knows no role",
		from: join(plumbs, leaves),
		to:   join(engines, runs, daemon),
		why:  "plumbing serves every role; the daemon is where they meet",
	},
	{
		name: "the fast path knows no role's plumbing",
		from: join(fastpaths, bpfs),
		to:   join(without(engines, "translate/nat64/state", "gprs/ggsn"), runs, plumbs, daemon, edges), // whose records programs share
		why:  "maps and programs are handed to a run package, which alone knows whose packets they carry",
	},
	{
		name: "the fast path is attached by run packages",
		from: join(pure, edges, plumbs, daemon, cmds),
		to:   join(fastpaths, bpfs),
		why:  "an attached program acts for one role, whose run package starts and ends it",
	},
	{
		name: "roles are known to their list alone",
		from: runs,
		to:   roles,
		why:  "what roles tell each other is a type that config or internal/event knows; what a family shares, it shares whichever of its roles are there",
	},
	{
		name: "edges know no role",
		from: without(edges, "sctp"), // a library that stands on its engine, and on ports
		to:   join(codecs, engines, runs, plumbs, daemon),
		why:  "an edge asks and reports; what its answer means is decided in a pure file of an engine, which its run package tells",
	},
	{
		name: "the SCTP library stands alone",
		from: []string{"sctp"},
		to:   join(without(codecs, "sctp/chunk"), without(engines, "sctp/assoc"), runs, without(plumbs, "internal/port"), daemon, fastpaths, bpfs),
		why:  "other programs import it as they import package net",
	},
	{
		name: "edges are held by run packages",
		from: join(pure, plumbs, daemon, labs, cmds),
		to:   without(edges, "sctp"),
		why:  "an edge does I/O in the name of one role, whose run package starts and ends it",
	},
	{
		name: "libraries with I/O stay in their edge",
		from: join(pure, runs, plumbs, daemon, labs, cmds),
		to:   []string{"github.com/huin/goupnp/...", "github.com/jackpal/go-nat-pmp/..."},
		why:  "what they do on the network is bounded in one place: size, time and who is talked to",
	},
	{
		name: "the DNS library stays with those who speak DNS",
		from: without(program, "translate/dns64", "translate/dns64/dns64role", "translate/pref64/discovery", "sip/locate"),
		to:   []string{"github.com/miekg/dns/..."},
		why:  "what is asked of name servers, and whom, is bounded in one place; what they said is judged by dns64, pref64 and locate",
	},
	{
		name: "other people's protocols stay in tests",
		from: program,
		to:   []string{"github.com/wmnsk/go-gtp/...", "github.com/pion/sctp/..."},
		why:  "they are there to be differed from",
	},
	{
		name: "the BGP library stays in its package",
		from: without(program, "internal/announce/bgp"),
		to:   []string{"github.com/osrg/gobgp/..."},
		why:  "its configuration types and its log are its own; everybody else says prefix and neighbor",
	},
	{
		name: "the RADIUS library stays in its package",
		from: without(program, "internal/radius"),
		to:   []string{"layeh.com/radius/..."},
		why:  "what is taken of an answer is decided in one place, and its addresses are those of package net",
	},
	{
		name: "run packages know no daemon",
		from: runs,
		to:   join(daemon, []string{"internal/control", "internal/metrics"}),
		why:  "a role offers its status and counters through internal/role; who shows them is the daemon's choice",
	},
	{
		name: "the daemon only composes",
		from: daemon,
		to:   join(engines, codecs, []string{"internal/packet"}),
		why:  "whatever handles a packet belongs to a role",
	},
	{
		name: "the lab stays outside",
		from: join(pure, runs, plumbs, daemon),
		to:   labs,
		why:  "the lab is a user of Isthmus; what serves packets must not depend on it",
	},
	{
		name: "commands are the end",
		from: join(pure, runs, plumbs, daemon, labs),
		to:   cmds,
		why:  "a command parses, composes and prints; what others need belongs below it",
	},
	{
		name: "signals are the program's",
		from: without(program, "cmd/isthmus", "lab/vm"),
		to:   []string{"os/signal"},
		why:  "a command takes a context, which every signal to end ends alike, that of a closing terminal, too",
	},
	{
		name: "test doubles stay in tests",
		from: program,
		to:   join(doubles, []string{"testing/..."}),
		why:  "test doubles and the testing package never reach the program",
	},
}

// edge is one import of a package by another.
type edge struct{ from, to string }

// forbids returns whether the rule is broken by the edge.
func (r *rule) forbids(e edge) bool {
	return e.from != e.to && matches(r.from, e.from) && matches(r.to, e.to)
}

// broken returns what each forbidden edge breaks and why that is a rule.
func broken(edges []edge) []string {
	var complaints []string
	for _, e := range edges {
		for _, r := range rules {
			if r.forbids(e) {
				complaints = append(complaints, fmt.Sprintf("%s imports %s, but %s: %s", e.from, e.to, r.name, r.why))
			}
		}
	}
	return complaints
}

// matches reports whether a package belongs to a group.
func matches(group []string, pkg string) bool {
	if slices.Contains(group, "!"+pkg) || classOf()[pkg] != "" && slices.Contains(group, "!"+classOf()[pkg]) {
		return false
	}
	return slices.ContainsFunc(group, func(g string) bool {
		if name, ending := strings.CutPrefix(g, "*"); ending {
			return strings.HasSuffix(pkg, name) && path.Base(pkg) != name
		}
		if strings.HasPrefix(g, "//") {
			return classOf()[pkg] == g
		}
		base, tree := strings.CutSuffix(g, "/...")
		return g == pkg || tree && (pkg == base || strings.HasPrefix(pkg, base+"/"))
	})
}

// classOf is the line //house:... of the comment of each package that has one.
var classOf = sync.OnceValue(func() map[string]string {
	classes := map[string]string{}
	root := filepath.Join("..", "..")
	_ = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil || file.Doc == nil {
			return nil
		}
		for _, c := range file.Doc.List {
			if strings.HasPrefix(c.Text, "//house:") {
				pkg, _ := filepath.Rel(root, filepath.Dir(name))
				classes[filepath.ToSlash(pkg)] = c.Text
			}
		}
		return nil
	})
	return classes
})

func join(groups ...[]string) []string {
	var joined []string
	for _, g := range groups {
		joined = append(joined, g...)
	}
	return joined
}

// without returns the group less some packages.
func without(group []string, packages ...string) []string {
	group = slices.Clone(group)
	for _, p := range packages {
		group = append(group, "!"+p)
	}
	return group
}

// TestImportsPointOneWay checks the imports of everything that ends in the
// program; tests may import what they need.
func TestImportsPointOneWay(t *testing.T) {
	var edges []edge
	seen := make(map[edge]bool)
	for _, f := range readSource(t) {
		if f.test || matches(doubles, f.pkg) {
			continue
		}
		for _, to := range f.imports() {
			if e := (edge{f.pkg, to}); !seen[e] {
				seen[e] = true
				edges = append(edges, e)
			}
		}
	}
	for _, complaint := range broken(edges) {
		t.Error(complaint)
	}
}

// TestEveryPackageHasAPlace makes whoever adds a package say what it is, so
// that the rules above cover it.
func TestEveryPackageHasAPlace(t *testing.T) {
	seen := make(map[string]bool)
	for _, f := range readSource(t) {
		if f.test || seen[f.pkg] {
			continue
		}
		seen[f.pkg] = true
		if !matches(join(program, doubles), f.pkg) {
			t.Errorf("%s belongs to no group in internal/house/imports_test.go; say in its package comment which class it is (//house:codec, engine, part, shared, edge), or there that it is plumbing, or name it as roles (echorole) and test doubles (echotest) are named", f.pkg)
		}
	}
}

// TestRulesForbid shows each rule an edge that breaks it.
func TestRulesForbid(t *testing.T) {
	examples := map[string]edge{
		"pure packages do no I/O":          {"teredo/server", "net"},
		"pure packages share nothing":      {"teredo/relay", "sync"},
		"pure packages draw no randomness": {"teredo/client", "crypto/rand"},
		"pure packages know no plumbing":   {"teredo/client", "internal/config"},
		"engines are seeded by the system": {"teredo/client/clientrole", "math/rand/v2"},
		"what serves all roles knows none": {"internal/packet", "teredo"},

		"only what a fast path shares is shared":         {"teredo/client", "sync/atomic"},
		"codecs know no engine":                          {"teredo", "teredo/peer"},
		"engines know no other engine":                   {"teredo/server", "teredo/relay"},
		"parts know no engine":                           {"teredo/peer", "teredo/relay"},
		"ports are opened by run packages":               {"internal/daemon", "internal/port"},
		"plumbing knows no role":                         {"internal/metrics", "teredo/client/clientrole"},
		"run packages know no daemon":                    {"teredo/client/clientrole", "internal/metrics"},
		"other people's protocols stay in tests":         {"gprs/gtp", "github.com/wmnsk/go-gtp/gtpv1"},
		"the BGP library stays in its package":           {"internal/announce", "github.com/osrg/gobgp/v4/pkg/server"},
		"the RADIUS library stays in its package":        {"gprs/ggsn/ggsnrole", "layeh.com/radius/rfc2865"},
		"the DNS library stays with those who speak DNS": {"translate/nat64/nat64role", "github.com/miekg/dns"},

		"roles are known to their list alone":       {"translate/gateway", "translate/siit/siitrole"},
		"edges know no role":                        {"teredo/portmap", "teredo/client"},
		"the SCTP library stands alone":             {"sctp", "internal/config"},
		"edges are held by run packages":            {"teredo/client", "teredo/portmap"},
		"libraries with I/O stay in their edge":     {"teredo/client/clientrole", "github.com/huin/goupnp/soap"},
		"the fast path knows no role's plumbing":    {"teredo/teredobpf", "teredo/relay"},
		"the fast path is attached by run packages": {"internal/daemon", "fastpath/bypass"},
		"the daemon only composes":                  {"internal/daemon", "teredo/server"},
		"the lab stays outside":                     {"teredo/client/clientrole", "lab"},
		"commands are the end":                      {"lab/experiment", "cmd/isthmus"},
		"signals are the program's":                 {"sctp/media/mediarole", "os/signal"},
		"test doubles stay in tests":                {"teredo/client/clientrole", "internal/port/porttest"},
	}
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			e, ok := examples[r.name]
			if !ok {
				t.Fatal("no example shows that this rule forbids anything")
			}
			if !r.forbids(e) {
				t.Errorf("the rule allows %s to import %s", e.from, e.to)
			}
			if r.why == "" {
				t.Error("the rule gives no reason")
			}
		})
	}
	allowed := []edge{
		{"teredo/server", "net/netip"},
		{"teredo/server", "teredo"},
		{"teredo/relay", "sync/atomic"},
		{"translate/nat64/state", "sync/atomic"},
		{"gprs/ggsn", "sync/atomic"},
		{"teredo/client", "math/rand/v2"},
		{"teredo/server/serverrole", "teredo/server"},
		{"teredo/client/clientrole", "internal/port"},
		{"teredo/client/clientrole", "teredo/portmap"},
		{"teredo/client/clientrole", "fastpath/bypass"},
		{"teredo/portmap", "github.com/huin/goupnp/soap"},
		{"sctp", "sctp/assoc"},
		{"sctp", "internal/port"},
		{"teredo/client/clientrole", "internal/config"},
		{"internal/daemon", "teredo/client/clientrole"},
		{"cmd/isthmus", "lab/experiment"},
		{"lab", "internal/port"},
	}
	for _, complaint := range broken(allowed) {
		t.Errorf("an edge that is meant to be is forbidden: %s", complaint)
	}
}
