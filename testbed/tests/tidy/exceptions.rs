//! What may break a rule, each with its reason. `NOT_YET` is a debt: nothing is to be added under it.

use super::{Exception, exception};

const STORY: &str = "a test that tells one story, each step of which needs those before it";
const TABLE: &str = "a table: one arm or row for each kind, which are easiest to compare beside each other";
const OPTIONS: &str = "options of a program or a file, one field each, as clap and serde read them";
const RECORD: &str = "a record of a protocol or a file, field by field";
const STANDARD: &str = "the variables of IEEE 802.1Q, by their names there";
const STRATEGY: &str = "a strategy that firmware/README.md or the book shows; `scripts/strategy` compiles it";
const PAIR: &str = "the two ends of one thing, which are wrong or right together";
const NOT_YET: &str = "older than the rule, and not mended yet";

/// Functions of more than 70 lines.
pub const LONG_FUNCTIONS: &[Exception] = &[
    exception("firmware/src/control/request.rs Request::encode", TABLE),
    exception("firmware/src/pipeline.rs Pipeline::poll", NOT_YET),
    exception(
        "firmware/tests/copy_engine/main.rs m_ci1_any_schedule_looks_like_memcpy_in_order",
        STORY,
    ),
    exception(
        "firmware/tests/firmware/control.rs nonsense_is_refused_with_a_reason_and_changes_nothing",
        STORY,
    ),
    exception("firmware/tests/firmware/control_fuzz.rs Nearly::request", TABLE),
    exception(
        "firmware/tests/no_allocation.rs m_gf6_m_gf9_m_bv8_m_bv10_no_allocation_while_steering_misordering_watching_and_ringing",
        STORY,
    ),
    exception(
        "guest-driver/mxoe/tests/engine/bad_control.rs connects_from_nowhere_to_nowhere_and_with_wrong_keys_are_refused",
        STORY,
    ),
    exception(
        "guest-driver/mxoe/tests/engine/bad_pulls.rs pulls_outside_of_what_was_announced_are_dropped_or_refused",
        STORY,
    ),
    exception("guest-driver/mxoe/tests/engine/loss.rs storm", STORY),
    exception("guest-driver/mxoe/tests/engine_fuzz.rs Live::frame", TABLE),
    exception("guest-driver/mxoe/tests/properties.rs packet", TABLE),
    exception(
        "guest-driver/mxoe/tests/worked_frames.rs packets_that_are_alike_in_all_modes_match_the_worked_frames",
        STORY,
    ),
    exception(
        "guest-driver/netif/tests/veth/bulk.rs a_port_and_the_sockets_it_shares_a_look_with_get_their_frames_whatever_becomes_of_the_others",
        STORY,
    ),
    exception("guest-driver/ofi/src/abi/tests.rs layouts", TABLE),
    exception("guest-driver/ofi/src/abi/tests.rs numbers", TABLE),
    exception("guest-driver/omx/tests/fuzz.rs Peers::frame", TABLE),
    exception("guest-driver/omx/tests/fuzz.rs Peers::unsequenced", TABLE),
    exception(
        "guest-driver/omxd/tests/programs/crowd.rs ten_programs_with_ten_over_1_gbit_per_s_lose_nothing_and_leave_tcp_its_share",
        STORY,
    ),
    exception(
        "guest-driver/omxd/tests/programs/liar.rs whatever_another_program_writes_to_shared_memory_the_endpoint_goes_on",
        STORY,
    ),
    exception(
        "guest-driver/omxd/tests/programs/same_host.rs a_program_of_this_host_that_ends_is_noticed_and_its_successor_found",
        STORY,
    ),
    exception("guest-driver/tools/src/nicctl/group.rs Group::run", TABLE),
    exception(
        "guest-driver/tools/tests/omx.rs omx_perf_prints_imb_columns_and_measures_rate_and_overlap",
        STORY,
    ),
    exception(
        "guest-driver/tools/tests/omx.rs omx_perf_times_every_length_and_omx_info_shows_who_is_there",
        STORY,
    ),
    exception(
        "guest-driver/tools/tests/omx.rs the_small_tools_show_test_and_name_boards",
        STORY,
    ),
    exception(
        "guest-driver/tools/tests/programs.rs nicctl_reads_and_changes_a_card",
        STORY,
    ),
    exception("testbed/dissector/tests/tshark/common.rs tshark", TABLE),
    exception("testbed/dissector/tests/tshark/control.rs fields", TABLE),
    exception(
        "testbed/dissector/tests/tshark/control/expected.rs expected_reply",
        TABLE,
    ),
    exception("testbed/dissector/tests/tshark/expected.rs fields", TABLE),
    exception(
        "testbed/dissector/tests/tshark/multicast.rs m_bv5_frames_between_cards_are_named",
        STORY,
    ),
    exception("testbed/dissector/tests/tshark/mxoe.rs frame", TABLE),
    exception("testbed/src/lab/error.rs from_toml", TABLE),
    exception(
        "testbed/src/lab/tests/error.rs every_mistake_is_answered_with_its_place_and_what_would_be_right",
        STORY,
    ),
    exception(
        "testbed/src/lab/tests/file.rs whatever_stands_at_any_key_is_answered_in_words_that_are_not_those_of_the_reader",
        TABLE,
    ),
    exception(
        "testbed/src/settings_in_force/mod.rs tests::a_vnicd_started_again_gets_the_settings_that_were_in_force",
        STORY,
    ),
    exception(
        "testbed/tests/lab/cards.rs queue_pairs_jumbo_frames_ports_without_offloads_and_trunks_work_together",
        STORY,
    ),
    exception(
        "testbed/tests/lab/commands.rs commands_in_guests_behave_as_if_they_were_here",
        STORY,
    ),
    exception(
        "testbed/tests/lab/counts.rs m_gf10_reasons_are_what_the_guest_took_and_captured_frames_are_what_the_card_counted",
        STORY,
    ),
    exception(
        "testbed/tests/lab/demo.rs the_demo_shows_what_marks_do_and_explains_it",
        STORY,
    ),
    exception(
        "testbed/tests/lab/commands.rs everything_that_is_shown_is_shown_as_json",
        STORY,
    ),
    exception(
        "testbed/tests/lab/killed.rs traffic_and_settings_survive_a_killed_vnicd",
        STORY,
    ),
    exception(
        "testbed/tests/lab/bypass.rs m_gf9_endpoints_share_a_card_that_they_drive_themselves_and_outlive_killed_programs",
        STORY,
    ),
    exception(
        "testbed/tests/lab/readme.rs guests_of_ones_own_reach_each_other_with_the_lines_of_the_readme",
        STORY,
    ),
    exception(
        "testbed/tests/lab/reconcile.rs a_running_lab_becomes_what_its_changed_file_says_and_the_rest_runs_on",
        STORY,
    ),
    exception(
        "testbed/tests/lab/reload.rs another_vnicd_is_swapped_in_with_every_setting_and_one_that_fails_is_not",
        STORY,
    ),
    exception(
        "testbed/tests/lab/steering.rs m_gf9_each_endpoint_has_its_queue_and_m_gf6_marks_and_frames_out_of_order_lose_no_message",
        STORY,
    ),
    exception(
        "testbed/tests/lab/watchdog.rs m_bv8_m_bv9_m_bv10_a_guest_is_interrupted_by_its_watchdog_where_it_does_not_poll_and_rung_by_its_timers_and_m_gf7_m_gf8",
        STORY,
    ),
    exception("vnic/src/session/rules.rs Rules::decide", TABLE),
    exception(
        "vnic/src/session/rules_tests.rs odd_messages_are_refused_with_one_sentence",
        STORY,
    ),
    exception("vnic/src/dataplane/handle/stats.rs DataPlane::stats", TABLE),
    exception("vnic/src/dataplane/tests/shortcuts.rs batch", STORY),
    exception("vnic/src/dataplane/tests/shortcuts.rs compare", STORY),
    exception(
        "vnic/src/dataplane/tests/paths.rs each_fault_befalls_as_many_frames_as_is_set_whichever_way_they_take",
        STORY,
    ),
    exception("vnic/tests/bad_input/attacks.rs Ground::attack", TABLE),
    exception(
        "vnic/tests/bad_input/guests_that_stall.rs a_guest_that_stops_refilling_for_a_minute_costs_only_its_own_frames",
        STORY,
    ),
    exception(
        "vnic/tests/bad_input/killed.rs vnicd_killed_under_traffic_is_resumed_by_its_guests",
        STORY,
    ),
    exception("vnic/tests/bad_input/session_attacks.rs Ground::attack", TABLE),
    exception("vnic/tests/bad_input/session_messages.rs nonsense", TABLE),
    exception(
        "vnic/tests/vnicd.rs m_gf9_frames_reach_the_queue_of_their_endpoint_and_the_steering_is_told_and_remembered",
        STORY,
    ),
    exception(
        "vnic/tests/vnicd.rs wrong_command_lines_and_configurations_exit_with_2",
        STORY,
    ),
];

/// Structs of more than 15 fields.
pub const WIDE_STRUCTS: &[Exception] = &[
    exception("fabric/src/link/config.rs FlatLink", OPTIONS),
    exception("fabric/src/link/config.rs LinkChange", OPTIONS),
    exception("fabric/src/link/config.rs LinkConfig", OPTIONS),
    exception("fabric/src/stp/port.rs StpPort", STANDARD),
    exception("firmware/src/pipeline.rs Pipeline", NOT_YET),
    exception("guest-driver/authority/src/protocol.rs BoardStatus", RECORD),
    exception("guest-driver/authority/src/protocol.rs Opened", RECORD),
    exception("guest-driver/esp/src/connection/mod.rs Info", RECORD),
    exception("guest-driver/esp/src/handover.rs Handover", RECORD),
    exception("guest-driver/ofi/src/abi/mod.rs FiDomainAttr", RECORD),
    exception("guest-driver/omx/src/options.rs EndpointOptions", OPTIONS),
    exception("guest-driver/omxd/src/cli.rs Arguments", OPTIONS),
    exception("guest-driver/omxd/src/daemon.rs DaemonOptions", OPTIONS),
    exception("guest-driver/tools/src/perf/cli.rs Arguments", OPTIONS),
    exception("testbed/src/cli/common/cable.rs CableArgs", OPTIONS),
    exception("testbed/src/lab/file.rs LinkFile", OPTIONS),
    exception("testbed/src/lab/file.rs NicFile", OPTIONS),
    exception("testbed/src/lab/file.rs NodeFile", OPTIONS),
    exception("vnic/protocol/src/config.rs PortSettings", OPTIONS),
    exception("vnic/protocol/src/stats.rs PortStats", RECORD),
];

/// Inherent methods beside their type.
pub const METHODS_ELSEWHERE: &[Exception] = &[
    exception("guest-driver/omx/src/api.rs Endpoint", NOT_YET),
    exception("guest-driver/omx/src/blocking.rs Endpoint", NOT_YET),
    exception("guest-driver/omx/src/completion.rs Endpoint", NOT_YET),
    exception("guest-driver/omx/src/filter.rs Endpoint", NOT_YET),
];

/// Modules whose files import each other in a circle, by the root of their crate and the module above them.
pub const IMPORT_CIRCLES: &[Exception] = &[];

/// Files with more than one concept.
pub const SEVERAL_CONCEPTS: &[Exception] = &[
    exception("guest-driver/authority/src/table.rs", PAIR),
    exception("guest-driver/omx/src/local/ring.rs", PAIR),
    exception("vnic/src/dataplane/frames/pool.rs", PAIR),
    exception("vnic/src/dataplane/wiring/card_frames.rs", PAIR),
    exception("vnic/testkit/src/queue.rs", PAIR),
];

/// Files of Rust that no program names.
pub const NO_MODULES: &[Exception] = &[
    exception("firmware/strategies/every_second.rs", STRATEGY),
    exception("firmware/strategies/never_reset.rs", STRATEGY),
];
