# forward_small_sm80's compiled kernels: one small translation unit for each row of kConfigs
# (config.hpp) and type. instances.cpp makes the list of them a table.
set(small80_configs 4)
set(small80_generated ${CMAKE_CURRENT_BINARY_DIR}/generated/forward_small_sm80)
set(small80_sources "")
set(small80_declarations "")
set(small80_entries "")
math(EXPR small80_last_config "${small80_configs} - 1")
foreach(INSTANCE_ELEMENT Fp16 Bf16)
  foreach(INSTANCE_CONFIG RANGE ${small80_last_config})
    string(TOLOWER "small80_${INSTANCE_ELEMENT}_config${INSTANCE_CONFIG}" INSTANCE_NAME)
    set(source ${small80_generated}/${INSTANCE_NAME}.cu)
    configure_file(forward_small_sm80/instance.cu.in ${source} @ONLY)
    list(APPEND small80_sources ${source})
    string(APPEND small80_declarations "InstanceEntry ${INSTANCE_NAME}(bool whole);\n")
    string(APPEND small80_entries "    ${INSTANCE_NAME}(false), ${INSTANCE_NAME}(true),\n")
  endforeach()
endforeach()
configure_file(forward_small_sm80/instance_list.hpp.in ${small80_generated}/instance_list.hpp @ONLY)

# Code for 8.0 runs on 8.6 and 8.9 as it is: they have no instruction that these kernels would use.
flashcore_cuda_sources(TARGETS 80 90a SOURCES ${small80_sources})
target_sources(flashcore_objects PRIVATE forward_small_sm80/instances.cpp)
set_source_files_properties(forward_small_sm80/instances.cpp TARGET_DIRECTORY flashcore_objects
  PROPERTIES INCLUDE_DIRECTORIES ${small80_generated})
