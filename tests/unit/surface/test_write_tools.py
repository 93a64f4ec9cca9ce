"""Names of tools of public MCP servers without annotations: which of them change something."""

import pytest

from upwell.ground.types.cue import Cue
from upwell.surface.filters import writes

WRITE = """
fs__write_file fs__edit_file fs__create_directory fs__move_file fs__save_file github__create_issue
github__push_files github__merge_pull_request github__add_issue_comment github__fork_repository
github__update_pull_request_branch github__submit_pending_pull_request_review github__issue_write
gitlab__create_merge_request slack__slack_post_message slack__slack_add_reaction
slack__slack_reply_to_thread chat__post_message sqlite__write_query sqlite__create_table
db__drop_table db__truncate_table db__alter_table notion__API-post-page notion__API-patch-page
notion__notion-update-page linear__create_issue linear__save_comment jira__jira_transition_issue
jira__jira_add_comment jira__jira_delete_issue memory__create_entities memory__add_observations
memory__delete_relations git__git_commit git__git_add git__git_reset redis__set redis__delete
redis__hset stripe__create_customer stripe__cancel_subscription stripe__create_refund
gmail__send_email gmail__modify_email gmail__draft_email calendar__create_event
calendar__delete_event drive__copyFile drive__shareFile kube__apply_manifest kube__scale_deployment
kube__uninstall_helm_chart aws__put_object mongo__insertMany mongo__dropCollection
mongo__updateMany supabase__apply_migration supabase__deploy_edge_function
sentry__update_issue figma__post_comment docker__stop_container docker__remove_image
todoist__close_task todoist__reopen_task trello__archive_card airtable__update_records
hubspot__create_contact discord__send_message telegram__send_message obsidian__append_content
""".split()
READ = """
fs__read_file fs__read_multiple_files fs__list_directory fs__directory_tree fs__search_files
fs__get_file_info github__get_issue github__list_commits github__search_code github__get_me
github__get_pull_request_diff github__list_merge_requests gitlab__get_merge_request
slack__slack_get_channel_history slack__slack_list_channels sqlite__read_query sqlite__list_tables
sqlite__describe_table db__query pg__query notion__API-get-self notion__notion-search
notion__notion-fetch linear__list_issues linear__get_issue jira__jira_search jira__jira_get_issue
memory__read_graph memory__search_nodes memory__open_nodes git__git_status git__git_diff
git__git_log git__git_show redis__get redis__scan_keys stripe__list_customers
stripe__search_documentation gmail__search_emails gmail__read_email calendar__list_events
drive__listFolder drive__searchFiles kube__list_pods kube__pod_logs aws__get_object
aws__list_buckets mongo__find mongo__aggregate mongo__countDocuments supabase__list_tables
supabase__get_advisors sentry__find_issues sentry__get_issue_details figma__get_figma_data
docker__list_containers docker__fetch_container_logs todoist__get_tasks trello__get_cards
airtable__list_records hubspot__get_contact context7__resolve-library-id
context7__get-library-docs brave__brave_web_search exa__web_search_exa firecrawl__firecrawl_scrape
tavily__tavily-search fetch__fetch time__get_current_time time__convert_time serena__find_symbol
serena__get_symbols_overview playwright__browser_snapshot obsidian__get_file_contents
""".split()


UNSEEN_WRITE = """
fs__rm fs__unlink fs__touch fs__new_file fs__chmod git__git_checkout git__git_rebase git__git_stash
git__git_init git__cherry_pick chat__react mail__forward_email calendar__book_meeting
tasks__complete_task tasks__finish_task docker__prune docker__start_container docker__build_image
redis__hset redis__expire browser__click browser__fill_form db__migrate db__run_migration
pod__exec_in_pod mail__trash_message work__pause_project pay__finalize_invoice pay__pay_invoice
fs__erase fs__mkdirs disk__wipe_disk host__reboot keys__rotate_key browser__browser_drag
""".split()
UNSEEN_READ = """
git__explain_commit git__diff_merge_base blog__post_count math__set_theory_lookup
calendar__start_status books__book_search db__execute_sql db__run_query ci__build_info
git__list_tags code__type_definition lsp__type_hierarchy fs__preview_edit tickets__compare_updates
""".split()
"""Names that someone chose who had not read the lists, with some of our own."""


def taken_for_a_write(tool: str) -> bool:
    return bool(writes(Cue(door="tool", tool=tool)))


def test_precision_and_recall_over_forty_servers() -> None:
    found = [tool for tool in WRITE if taken_for_a_write(tool)]
    wrong = [tool for tool in READ if taken_for_a_write(tool)]
    assert len(found) / len(WRITE) >= 0.95, sorted({*WRITE} - {*found})
    assert len(found) / (len(found) + len(wrong)) >= 0.97, wrong


def test_names_that_the_lists_were_not_made_from() -> None:
    assert [tool for tool in UNSEEN_WRITE if not taken_for_a_write(tool)] == []
    assert [tool for tool in UNSEEN_READ if taken_for_a_write(tool)] == []


@pytest.mark.parametrize(
    "tool", ["db__drop_table", "fs__save_file", "chat__post_message", "db__truncate_table"]
)
def test_verbs_of_many_interfaces(tool: str) -> None:
    assert taken_for_a_write(tool)


def test_annotations_decide_before_the_name() -> None:
    reads = Cue(door="tool", tool="x__drop_cache", annotations={"readOnlyHint": True})
    assert writes(reads) == ""
