// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

// rawFile is the file as it is written. Fields are any, so that a value of the
// wrong type is reported with our words and beside all other faults; nil is a
// key that is not there.
type rawFile struct {
	Server []rawServer `toml:"server"`
	Relay  []rawRelay  `toml:"relay"`
	Client []rawClient `toml:"client"`
	NAT64  []rawNAT64  `toml:"nat64"`
	SIIT   []rawSIIT   `toml:"siit"`
}

type rawServer struct {
	Name               any `toml:"name"`
	Address            any `toml:"address"`
	Secondary          any `toml:"secondary"`
	Advertise          any `toml:"advertise"`
	AdvertiseSecondary any `toml:"advertise_secondary"`
	Prefixes           any `toml:"prefixes"`
	Port               any `toml:"port"`
	AllowPrivate       any `toml:"allow_private"`
	RatePerSource      any `toml:"rate_per_source"`
	RateTotal          any `toml:"rate_total"`
	Burst              any `toml:"burst"`
	MTU                any `toml:"mtu"`
	Key                any `toml:"key"`
	KeysFile           any `toml:"keys_file"`
	RequireAuth        any `toml:"require_auth"`
	Workers            any `toml:"workers"`
	Announce           any `toml:"announce"`
}

// rawKeys is a file of keys.
type rawKeys struct {
	Key any `toml:"key"`
}

type rawRelay struct {
	Name              any `toml:"name"`
	Mode              any `toml:"mode"`
	Bind              any `toml:"bind"`
	Prefixes          any `toml:"prefixes"`
	Serve             any `toml:"serve"`
	Interface         any `toml:"interface"`
	MTU               any `toml:"mtu"`
	Route             any `toml:"route"`
	Address           any `toml:"address"`
	MaxPeers          any `toml:"max_peers"`
	PeerTimeout       any `toml:"peer_timeout"`
	QueuePackets      any `toml:"queue_packets"`
	QueueBytes        any `toml:"queue_bytes"`
	QueueTotalBytes   any `toml:"queue_total_bytes"`
	BubbleRate        any `toml:"bubble_rate"`
	ICMPRate          any `toml:"icmp_rate"`
	BehindNAT         any `toml:"behind_nat"`
	EchoThroughServer any `toml:"echo_through_server"`
	CarryClients      any `toml:"carry_clients"`
	CarryRate         any `toml:"carry_rate"`
	CarryClientRate   any `toml:"carry_client_rate"`
	AllowPrivate      any `toml:"allow_private"`
	Workers           any `toml:"workers"`
	Announce          any `toml:"announce"`
	KeepState         any `toml:"keep_state"`
	StateFile         any `toml:"state_file"`
	FastPath          any `toml:"fast_path"`
	FastPathDevices   any `toml:"fast_path_devices"`
	FastPathLinger    any `toml:"fast_path_linger"`
}

type rawClient struct {
	Name                  any `toml:"name"`
	Server                any `toml:"server"`
	Secondary             any `toml:"secondary"`
	Port                  any `toml:"port"`
	Bind                  any `toml:"bind"`
	Interface             any `toml:"interface"`
	Prefixes              any `toml:"prefixes"`
	Interfaces            any `toml:"interfaces"`
	RefreshInterval       any `toml:"refresh_interval"`
	ProbeAfter            any `toml:"probe_after"`
	OnChange              any `toml:"on_change"`
	OnChangeTimeout       any `toml:"on_change_timeout"`
	QualificationTimeout  any `toml:"qualification_timeout"`
	QualificationAttempts any `toml:"qualification_attempts"`
	RefreshSearch         any `toml:"refresh_search"`
	LocalDiscovery        any `toml:"local_discovery"`
	Fallback              any `toml:"fallback"`
	Unsolicited           any `toml:"unsolicited"`
	Native                any `toml:"native"`
	RandomPorts           any `toml:"random_ports"`
	Hairpin               any `toml:"hairpin"`
	HairpinAllow          any `toml:"hairpin_allow"`
	LoadReduction         any `toml:"load_reduction"`
	OpeningTTL            any `toml:"opening_ttl"`
	RouteMetric           any `toml:"route_metric"`
	MaxPeers              any `toml:"max_peers"`
	QueuePackets          any `toml:"queue_packets"`
	QueueBytes            any `toml:"queue_bytes"`
	QueueTotalBytes       any `toml:"queue_total_bytes"`
	AllowPrivate          any `toml:"allow_private"`
	KeyID                 any `toml:"key_id"`
	KeySecret             any `toml:"key_secret"`
	KeySecretFile         any `toml:"key_secret_file"`
	KeyAlgorithm          any `toml:"key_algorithm"`
	PortMapping           any `toml:"port_mapping"`
	PortMappingFile       any `toml:"port_mapping_file"`
	FastPath              any `toml:"fast_path"`
}
