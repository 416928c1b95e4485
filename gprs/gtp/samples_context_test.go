// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

import "encoding/hex"

// sampleTFTOctets are a template of one filter, for both directions: UDP from
// 192.0.2.0/24 to port 5060 of the user.
var sampleTFTOctets = []byte{
	0x21, 0x31, 7, 14,
	componentRemote4, 192, 0, 2, 0, 255, 255, 255, 0,
	componentProtocol, 17,
	componentLocalPort, 0x13, 0xc4,
}

func createSamples() []sample {
	return []sample{
		{
			name:   "create request, version 0",
			header: v0(TypeCreateRequest, 0, 0x0102, sampleTID),
			message: &CreateRequest{
				QoS: mustQoS("00 0b921f"), Recovery: Some[uint8](3), SelectionMode: Some(SelectionMS),
				TEIDData: 0x1112, TEIDControl: Some[uint32](0x2122),
				EndUserAddress: Some(EndUserAddress{Type: PDPTypeIPv4}), APN: Some(sampleAPN), PCO: Some(samplePCO),
				AddressControl: sampleSGSN, AddressUser: sampleSGSN, MSISDN: Some(sampleMSISDN), Private: private,
			},
			wire: []string{
				"1e 10 LLLL 0102 0000 ff ffffff 4200012143658759",
				"06 0b921f", "0e 03", "0f fd", "10 1112", "11 2122", "80 0002 f121",
				"83 000e 05 696e657436 07 6578616d706c65", wirePCO,
				"85 0004 c0000201", "85 0004 c0000201", "86 0007 91 6407123254f6", wirePrivate,
			},
			tshark: map[string]string{
				"gtp.message": "0x10", "gtp.tid": "2400101234567895", "gtp.recovery": "3", "gtp.sel_mode": "1",
				"gtp.ext_flow_label": "0x1112", "gtp.flow_sig": "0x2122", "gtp.user_addr_pdp_type": "0x21",
				"gtp.apn": "inet6.example", "gtp.gsn_ipv4": "192.0.2.1,192.0.2.1", "e164.msisdn": "46702123456",
				"gtp.qos_delay": "1", "gtp.qos_reliability": "3", "gtp.qos_peak": "9", "gtp.qos_precedence": "2", "gtp.qos_mean": "31",
			},
		}, {
			name:   "create request of a primary context with every element",
			header: v1(TypeCreateRequest, 0, 0x0102),
			message: &CreateRequest{
				IMSI: Some(sampleIMSI), RAI: Some(RAI{samplePLMN, 0x1234, 0x56}), Recovery: Some[uint8](3),
				SelectionMode: Some(SelectionVerified), TEIDData: 0x11121314, TEIDControl: Some[uint32](0x21222324), NSAPI: 5,
				ChargingCharacteristics: Some[uint16](0x0800), TraceReference: Some[uint16](0x0102), TraceType: Some[uint16](0x0304),
				EndUserAddress: Some(EndUserAddress{Type: PDPTypeIPv4v6}), APN: Some(sampleAPN), PCO: Some(samplePCO),
				AddressControl: sampleSGSN, AddressUser: sampleSGSN, MSISDN: Some(sampleMSISDN), QoS: sampleQoS,
				TriggerID: Some([]byte{1, 2, 3}), OMCIdentity: Some([]byte{4, 5}), CommonFlags: Some(FlagDualAddressBearer | FlagUpgradeQoS),
				APNRestriction: Some[uint8](0), RATType: Some(RATUTRAN),
				Location: Some(Location{Kind: LocationService, PLMN: samplePLMN, LAC: 0x1234, Code: 0x5678}),
				TimeZone: Some(TimeZone{0x80, 1}), IMEI: Some(sampleIMEI), CAMEL: Some([]byte{0x31, 0}),
				AdditionalTrace: Some([]byte{0, 1, 2, 3, 4, 5, 6, 7, 0}), CorrelationID: Some[uint8](9),
				EvolvedARP: Some(MakeEvolvedARP(5, true, false)), ExtendedFlags: Some[uint8](0x80),
				UserCSG: Some([]byte{0x42, 0xf0, 0x10, 1, 2, 3, 4, 0x41}), AMBR: Some(AMBR{Up: 5000, Down: 20000}),
				SignallingPriority: Some[uint8](1), OperatorSelection: Some[uint8](1), MappedUEUsageType: Some[uint16](0x0102),
				UserPlaneSelection: Some[uint8](1), Private: private,
			},
			wire: []string{
				"32 10 LLLL 00000000 0102 00 00",
				"02 42000121436587f9", "03 42f010 1234 56", "0e 03", "0f fc", "10 11121314", "11 21222324", "14 05",
				"1a 0800", "1b 0102", "1c 0304", "80 0002 f18d",
				"83 000e 05 696e657436 07 6578616d706c65", wirePCO,
				"85 0004 c0000201", "85 0004 c0000201", "86 0007 91 6407123254f6",
				"87 000c 01 0b921f 71964068 7404 1f48",
				"8e 0003 010203", "8f 0002 0405", "94 0001 c0", "95 0001 00", "97 0001 01", "98 0008 01 42f010 1234 5678",
				"99 0002 80 01", "9a 0008 5321430021436587", "9b 0002 3100", "a2 0009 000102030405060700", "b7 0001 09",
				"bf 0001 15", "c1 0001 80", "c2 0008 42f010 01020304 41", "c6 0008 00001388 00004e20",
				"cb 0001 01", "d8 0001 01", "df 0002 0102", "e0 0001 01", wirePrivate,
			},
			tshark: map[string]string{
				"gtp.message": "0x10", "gtp.teid": "0x00000000", "gtp.seq_number": "0x0102", "e212.imsi": "240010123456789",
				"gtp.rai_rac": "86", "gtp.recovery": "3", "gtp.sel_mode": "0", "gtp.teid_data": "0x11121314", "gtp.teid_cp": "0x21222324",
				"gtp.nsapi": "5", "gtp.user_addr_pdp_type": "0x8d", "gtp.apn": "inet6.example", "gtp.chrg_char": "2048",
				"gtp.trace_ref": "0x0102", "gtp.trace_type": "0x0304", "gtp.gsn_ipv4": "192.0.2.1,192.0.2.1",
				"e164.msisdn": "46702123456", "gtp.qos_traf_class": "3", "gtp.qos_max_sdu_size": "1500",
				"gtp.qos_max_ul": "64", "gtp.qos_max_dl": "384", "gtp.cmn_flg.dual_addr_bearer_flg": "1", "gtp.cmn_flg.upgrd_qos_sup": "1",
				"gtp.cmn_flg.no_qos_neg": "0", "gtp.ext_rat_type": "1", "gtp.geo_loc_type": "1", "gtp.sai_sac": "22136",
				"gtp.timezone_dst": "1", "gtp.ext_imeisv": "3512340012345678", "gtp.correlation_id": "9",
				"gtp.EARP_priority_level": "5", "gtp.EARP_pre_emption_Capability": "0", "gtp.EARP_pre_emption_par_vulnerability": "1",
				"gtp.apn_ambr_ul": "5000", "gtp.apn_ambr_dl": "20000", "gtp.lapi": "1", "gtp.ext_id": "10415",
			},
		}, {
			name:   "create request of a secondary context",
			header: v1(TypeCreateRequest, 0xaabbccdd, 4),
			message: &CreateRequest{
				TEIDData: 0x31323334, NSAPI: 6, LinkedNSAPI: Some[uint8](5),
				AddressControl: sampleGGSN6, AddressUser: sampleGGSN6, QoS: sampleQoS, TFT: Some(sampleTFTOctets),
			},
			wire: []string{
				"32 10 LLLL aabbccdd 0004 00 00", "10 31323334", "14 06", "14 05",
				"85 0010 20010db8000900000000000000000002", "85 0010 20010db8000900000000000000000002",
				"87 000c 01 0b921f 71964068 7404 1f48", "89 0012", hex.EncodeToString(sampleTFTOctets),
			},
			tshark: map[string]string{"gtp.nsapi": "6,5", "gtp.gsn_ipv6": "2001:db8:9::2,2001:db8:9::2", "gtp.teid": "0xaabbccdd"},
		}, {
			name:   "create response, version 0",
			header: v0(TypeCreateResponse, 0x2122, 0x0102, sampleTID),
			message: &CreateResponse{
				Cause: CauseAccepted, QoS: Some(mustQoS("00 0b921f")), Reordering: Some(false), Recovery: Some[uint8](4),
				TEIDData: Some[uint32](0x3132), TEIDControl: Some[uint32](0x4142), ChargingID: Some[uint32](0x51525354),
				EndUserAddress: Some(EndUserAddress{Type: PDPTypeIPv4, IPv4: sampleUE}), PCO: Some(samplePCO),
				AddressControl: Some(sampleGGSN), AddressUser: Some(sampleGGSN), ChargingGateway: Some(sampleGGSN), Private: private,
			},
			wire: []string{
				"1e 11 LLLL 0102 2122 ff ffffff 4200012143658759", "01 80", "06 0b921f", "08 fe", "0e 04", "10 3132", "11 4142",
				"7f 51525354", "80 0006 f121 cb007105", wirePCO, "85 0004 c6336402", "85 0004 c6336402", "fb 0004 c6336402", wirePrivate,
			},
			tshark: map[string]string{
				"gtp.cause": "128", "gtp.reorder": "0", "gtp.chrg_id": "0x51525354", "gtp.user_ipv4": "203.0.113.5",
				"gtp.ext_flow_label": "0x3132", "gtp.flow_sig": "0x4142", "gtp.chrg_ipv4": "198.51.100.2",
			},
		}, {
			name:   "create response with every element",
			header: v1(TypeCreateResponse, 0x21222324, 0x0102),
			message: &CreateResponse{
				Cause: CauseNewPDPTypeNetwork, Reordering: Some(true), Recovery: Some[uint8](4),
				TEIDData: Some[uint32](0x31323334), TEIDControl: Some[uint32](0x41424344), NSAPI: Some[uint8](5), ChargingID: Some[uint32](0x51525354),
				EndUserAddress: Some(EndUserAddress{Type: PDPTypeIPv4v6, IPv4: sampleUE, IPv6: sampleUE6}), PCO: Some(samplePCO),
				AddressControl: Some(sampleGGSN), AddressUser: Some(sampleGGSN), AlternativeControl: Some(sampleGGSN6), AlternativeUser: Some(sampleGGSN6),
				QoS: Some(sampleQoS), CommonFlags: Some(FlagProhibitCompression), APNRestriction: Some[uint8](1),
				InfoChangeAction: Some(InfoChangeRAI), BearerControlMode: Some(BearerControlNetwork), EvolvedARP: Some(MakeEvolvedARP(15, false, true)),
				ExtendedFlags: Some[uint8](1), CSGReporting: Some[uint8](1), AMBR: Some(AMBR{Up: 1, Down: 2}), BackOffTime: Some[uint8](0x21),
				ExtendedFlagsII: Some[uint8](1), ChargingGateway: Some(sampleGGSN), AlternativeChargingGateway: Some(sampleGGSN6), Private: private,
			},
			wire: []string{
				"32 11 LLLL 21222324 0102 00 00", "01 81", "08 ff", "0e 04", "10 31323334", "11 41424344", "14 05", "7f 51525354",
				"80 0016 f18d cb007105 20010db80006000112345678 9abcdef0", wirePCO, "85 0004 c6336402", "85 0004 c6336402",
				"85 0010 20010db8000900000000000000000002", "85 0010 20010db8000900000000000000000002",
				"87 000c 01 0b921f 71964068 7404 1f48", "94 0001 01", "95 0001 01", "b5 0001 02", "b8 0001 01", "bf 0001 7c",
				"c1 0001 01", "c3 0001 01", "c6 0008 00000001 00000002", "ca 0001 21", "da 0001 01",
				"fb 0004 c6336402", "fb 0010 20010db8000900000000000000000002", wirePrivate,
			},
			tshark: map[string]string{
				"gtp.cause": "129", "gtp.reorder": "1", "gtp.user_ipv4": "203.0.113.5", "gtp.user_ipv6": "2001:db8:6:1:1234:5678:9abc:def0",
				"gtp.teid_data": "0x31323334", "gtp.teid_cp": "0x41424344", "gtp.chrg_id": "0x51525354", "gtp.ext_apn_res": "1",
				"gtp.ms_inf_chg_rep_act": "2", "gtp.bcm": "1", "gtp.EARP_pre_emption_Capability": "1", "gtp.EARP_pre_emption_par_vulnerability": "0",
				"gtp.ggsn_back_off_time_units": "1", "gtp.ggsn_back_off_timer": "1",
				"gtp.gsn_ipv4": "198.51.100.2,198.51.100.2", "gtp.gsn_ipv6": "2001:db8:9::2,2001:db8:9::2", "gtp.chrg_ipv6": "2001:db8:9::2",
			},
		}, {
			name: "create response that refuses", header: v1(TypeCreateResponse, 0x21222324, 0x0102),
			message: &CreateResponse{Cause: CauseAddressesOccupied},
			wire:    []string{"32 11 LLLL 21222324 0102 00 00", "01 d3"},
			tshark:  map[string]string{"gtp.cause": "211"},
		},
	}
}

func updateSamples() []sample {
	return []sample{
		{
			name: "update request, version 0", header: v0(TypeUpdateRequest, 0x3132, 5, sampleTID),
			message: &UpdateRequest{
				QoS: Some(mustQoS("00 0b921f")), Recovery: Some[uint8](3), TEIDData: Some[uint32](0x1112), TEIDControl: Some[uint32](0x2122),
				AddressControl: Some(sampleSGSN), AddressUser: Some(sampleSGSN), Private: private,
			},
			wire: []string{
				"1e 12 LLLL 0005 3132 ff ffffff 4200012143658759", "06 0b921f", "0e 03", "10 1112", "11 2122",
				"85 0004 c0000201", "85 0004 c0000201", wirePrivate,
			},
			tshark: map[string]string{"gtp.message": "0x12", "gtp.ext_flow_label": "0x1112", "gtp.flow_sig": "0x2122"},
		}, {
			name: "update request of an SGSN", header: v1(TypeUpdateRequest, 0x41424344, 5),
			message: &UpdateRequest{
				IMSI: Some(sampleIMSI), RAI: Some(RAI{samplePLMN, 0x1234, 0x56}), Recovery: Some[uint8](3),
				TEIDData: Some[uint32](0x11121314), TEIDControl: Some[uint32](0x21222324), NSAPI: 5,
				TraceReference: Some[uint16](0x0102), TraceType: Some[uint16](0x0304), PCO: Some(samplePCO),
				AddressControl: Some(sampleSGSN), AddressUser: Some(sampleSGSN), AlternativeControl: Some(sampleGGSN6), AlternativeUser: Some(sampleGGSN6),
				QoS: Some(sampleQoS), TFT: Some(sampleTFTOctets), TriggerID: Some([]byte{1}), OMCIdentity: Some([]byte{2}),
				CommonFlags: Some(FlagNoQoSNegotiation), RATType: Some(RATGERAN),
				Location: Some(Location{Kind: LocationCell, PLMN: samplePLMN, LAC: 0x1234, Code: 0x5678}), TimeZone: Some(TimeZone{0x80, 0}),
				IMEI: Some(sampleIMEI), AdditionalTrace: Some([]byte{0, 1, 2, 3, 4, 5, 6, 7, 0}), DirectTunnelFlags: Some(FlagDirectTunnel | FlagErrorIndication),
				EvolvedARP: Some(MakeEvolvedARP(1, true, true)), ExtendedFlags: Some[uint8](0), UserCSG: Some([]byte{0x42, 0xf0, 0x10, 1, 2, 3, 4, 0x41}),
				AMBR: Some(AMBR{Up: 3, Down: 4}), SignallingPriority: Some[uint8](0), Private: private,
			},
			wire: []string{
				"32 12 LLLL 41424344 0005 00 00", "02 42000121436587f9", "03 42f010 1234 56", "0e 03", "10 11121314", "11 21222324", "14 05",
				"1b 0102", "1c 0304", wirePCO, "85 0004 c0000201", "85 0004 c0000201",
				"85 0010 20010db8000900000000000000000002", "85 0010 20010db8000900000000000000000002",
				"87 000c 01 0b921f 71964068 7404 1f48", "89 0012", hex.EncodeToString(sampleTFTOctets), "8e 0001 01", "8f 0001 02",
				"94 0001 10", "97 0001 02", "98 0008 00 42f010 1234 5678", "99 0002 80 00", "9a 0008 5321430021436587",
				"a2 0009 000102030405060700", "b6 0001 05", "bf 0001 04", "c1 0001 00", "c2 0008 42f010 01020304 41",
				"c6 0008 00000003 00000004", "cb 0001 00", wirePrivate,
			},
			tshark: map[string]string{
				"gtp.cmn_flg.no_qos_neg": "1", "gtp.ext_rat_type": "2", "gtp.geo_loc_type": "0", "gtp.cgi_ci": "22136",
				"gtp.dti": "1", "gtp.ei": "1", "gtp.gcsi": "0", "gtp.EARP_priority_level": "1", "gtp.lapi": "0",
			},
		}, {
			name: "update request of a GGSN", header: v1(TypeUpdateRequest, 0x21222324, 6),
			message: &UpdateRequest{
				NSAPI: 5, EndUserAddress: Some(EndUserAddress{Type: PDPTypeIPv6, IPv6: sampleUE6}), QoS: Some(sampleQoS), APNRestriction: Some[uint8](2),
				InfoChangeAction: Some(InfoChangeCell), BearerControlMode: Some(BearerControlMS), CSGReporting: Some[uint8](7),
			},
			wire: []string{
				"32 12 LLLL 21222324 0006 00 00", "14 05", "80 0012 f157 20010db80006000112345678 9abcdef0",
				"87 000c 01 0b921f 71964068 7404 1f48", "95 0001 02", "b5 0001 01", "b8 0001 00", "c3 0001 07",
			},
			tshark: map[string]string{"gtp.user_ipv6": "2001:db8:6:1:1234:5678:9abc:def0", "gtp.bcm": "0", "gtp.ms_inf_chg_rep_act": "1"},
		}, {
			name: "update response, version 0", header: v0(TypeUpdateResponse, 0x2122, 5, sampleTID),
			message: &UpdateResponse{
				Cause: CauseAccepted, QoS: Some(mustQoS("00 0b921f")), Recovery: Some[uint8](4), TEIDData: Some[uint32](0x3132), TEIDControl: Some[uint32](0x4142),
				ChargingID: Some[uint32](0x51525354), AddressControl: Some(sampleGGSN), AddressUser: Some(sampleGGSN), ChargingGateway: Some(sampleGGSN), Private: private,
			},
			wire: []string{
				"1e 13 LLLL 0005 2122 ff ffffff 4200012143658759", "01 80", "06 0b921f", "0e 04", "10 3132", "11 4142", "7f 51525354",
				"85 0004 c6336402", "85 0004 c6336402", "fb 0004 c6336402", wirePrivate,
			},
			tshark: map[string]string{"gtp.cause": "128", "gtp.chrg_id": "0x51525354"},
		}, {
			name: "update response with every element", header: v1(TypeUpdateResponse, 0x21222324, 5),
			message: &UpdateResponse{
				Cause: CauseAccepted, Recovery: Some[uint8](4), TEIDData: Some[uint32](0x31323334), TEIDControl: Some[uint32](0x41424344),
				ChargingID: Some[uint32](0x51525354), PCO: Some(samplePCO), AddressControl: Some(sampleGGSN), AddressUser: Some(sampleGGSN),
				AlternativeControl: Some(sampleGGSN6), AlternativeUser: Some(sampleGGSN6), QoS: Some(sampleQoS), TFT: Some(sampleTFTOctets),
				CommonFlags: Some(FlagNRSN), APNRestriction: Some[uint8](3), Location: Some(Location{Kind: LocationRouting, PLMN: samplePLMN, LAC: 0x1234, Code: 0x56ff}),
				TimeZone: Some(TimeZone{0x0a, 2}), InfoChangeAction: Some(InfoChangeStop), DirectTunnelFlags: Some(FlagGPRSCSI),
				BearerControlMode: Some(BearerControlNetwork), EvolvedARP: Some(MakeEvolvedARP(2, false, false)),
				UserCSG: Some([]byte{0x42, 0xf0, 0x10, 1, 2, 3, 4, 0x41}), CSGReporting: Some[uint8](1), AMBR: Some(AMBR{Up: 5, Down: 6}),
				ChargingGateway: Some(sampleGGSN), AlternativeChargingGateway: Some(sampleGGSN6), Private: private,
			},
			wire: []string{
				"32 13 LLLL 21222324 0005 00 00", "01 80", "0e 04", "10 31323334", "11 41424344", "7f 51525354", wirePCO,
				"85 0004 c6336402", "85 0004 c6336402", "85 0010 20010db8000900000000000000000002", "85 0010 20010db8000900000000000000000002",
				"87 000c 01 0b921f 71964068 7404 1f48", "89 0012", hex.EncodeToString(sampleTFTOctets), "94 0001 20", "95 0001 03",
				"98 0008 02 42f010 1234 56ff", "99 0002 0a 02", "b5 0001 00", "b6 0001 02", "b8 0001 01", "bf 0001 49",
				"c2 0008 42f010 01020304 41", "c3 0001 01", "c6 0008 00000005 00000006", "fb 0004 c6336402",
				"fb 0010 20010db8000900000000000000000002", wirePrivate,
			},
			tshark: map[string]string{"gtp.cause": "128", "gtp.geo_loc_type": "2", "gtp.cmn_flg.nrsn": "1", "gtp.gcsi": "1", "gtp.timezone_dst": "2"},
		},
	}
}

func deleteSamples() []sample {
	return []sample{
		{
			name: "delete request, version 0", header: v0(TypeDeleteRequest, 0x3132, 9, sampleTID), message: &DeleteRequest{Private: private},
			wire:   []string{"1e 14 LLLL 0009 3132 ff ffffff 4200012143658759", wirePrivate},
			tshark: map[string]string{"gtp.message": "0x14", "gtp.flow_label": "0x3132"},
		}, {
			name: "delete request, version 1", header: v1(TypeDeleteRequest, 0x41424344, 9),
			message: &DeleteRequest{
				Cause: Some(CauseReactivationRequested), Teardown: Some(true), NSAPI: 5, PCO: Some(samplePCO),
				Location: Some(Location{Kind: LocationCell, PLMN: samplePLMN, LAC: 1, Code: 2}), TimeZone: Some(TimeZone{0x80, 1}),
				ExtendedFlags: Some[uint8](0x80), LocationTime: Some[uint32](0xe0000000), Private: private,
			},
			wire: []string{
				"32 14 LLLL 41424344 0009 00 00", "01 06", "13 ff", "14 05", wirePCO, "98 0008 00 42f010 0001 0002", "99 0002 80 01",
				"c1 0001 80", "d6 0004 e0000000", wirePrivate,
			},
			tshark: map[string]string{"gtp.cause": "6", "gtp.tear_ind": "1", "gtp.nsapi": "5", "gtp.cgi_ci": "2"},
		}, {
			name: "delete response, version 0", header: v0(TypeDeleteResponse, 0x2122, 9, sampleTID), message: &DeleteResponse{Cause: CauseAccepted},
			wire:   []string{"1e 15 LLLL 0009 2122 ff ffffff 4200012143658759", "01 80"},
			tshark: map[string]string{"gtp.cause": "128"},
		}, {
			name: "delete response, version 1", header: v1(TypeDeleteResponse, 0x21222324, 9),
			message: &DeleteResponse{
				Cause: CauseNonExistent, PCO: Some(samplePCO), Location: Some(Location{Kind: LocationCell, PLMN: samplePLMN, LAC: 1, Code: 2}),
				TimeZone: Some(TimeZone{0x80, 1}), LocationTime: Some[uint32](0xe0000000), Private: private,
			},
			wire: []string{
				"32 15 LLLL 21222324 0009 00 00", "01 c0", wirePCO, "98 0008 00 42f010 0001 0002", "99 0002 80 01", "d6 0004 e0000000", wirePrivate,
			},
			tshark: map[string]string{"gtp.cause": "192"},
		},
	}
}
